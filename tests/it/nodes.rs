//! Drains that are proved node by node: how long they take, what is refused, and what the plan says of it.

use handover::config::{Source, from_sources};
use handover::fleet::model::Fleet;
use handover::lab::simulation;

fn example() -> String {
    let text = std::fs::read_to_string("deploy.toml").expect("the example");
    assert!(text.contains("by     = \"file\""));
    text.replace("by     = \"file\"", "by     = \"gateway\"")
}

fn fleet(text: &str) -> Result<Fleet, String> {
    let loaded = from_sources(&Source::new("deploy.toml", text), None);
    loaded.map(|loaded| loaded.fleet).map_err(|problems| problems.to_string())
}

/// The floor counts the worst phase of the checks, and no settle; what is proved node by node is quicker on the average.
#[test]
fn over_a_thousand_seeds_the_mean_is_below_the_floor_and_no_run_is_far_above() {
    let fleet = fleet(&example()).expect("a fleet");
    let half = |odd: u64| {
        let runs = (0..500).map(|seed| simulation::took(&fleet, seed * 2 + odd).expect("a deploy"));
        runs.fold((0.0, 0.0, 0.0_f64), |(seconds, floors, worst), (took, floor)| {
            (seconds + took, floors + floor, worst.max(took / floor))
        })
    };
    let (even, odd) = std::thread::scope(|scope| {
        let even = scope.spawn(|| half(0));
        let odd = half(1);
        (even.join().expect("it ran"), odd)
    });
    let (seconds, floors, worst) = (even.0 + odd.0, even.1 + odd.1, even.2.max(odd.2));
    assert!(worst < 1.15, "{worst}");
    assert!(seconds < floors, "mean {} s, floor {} s", seconds / 1000.0, floors / 1000.0);
}

#[test]
fn two_groups_with_one_check_are_refused_with_a_way_to_tell_them_apart() {
    let second = |path: &str, port: u16| {
        let group = format!(
            "[[balancer.group]]\nname   = \"mythex-admin\"\nport   = {port}\n\
             health = {{ path = \"{path}\", interval = \"5s\", timeout = \"2s\", unhealthy = 2, healthy = 2 }}\n\n[drain]\n"
        );
        example().replacen("[drain]\n", &group, 1).replacen(
            "group    = \"mythex-api\"",
            "group    = [\"mythex-api\", \"mythex-admin\"]",
            1,
        )
    };
    let refused = fleet(&second("/health", 8080)).expect_err("they cannot be told apart");
    assert!(refused.contains("cannot be told apart") && refused.contains("`/health?g=mythex-admin`"), "{refused}");
    for (path, port) in [("/health?g=admin", 8080), ("/health", 8081)] {
        fleet(&second(path, port)).unwrap_or_else(|why| panic!("{path} {port}: {why}"));
    }
}
