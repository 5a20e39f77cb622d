//! The horizontal pod autoscaler as it was measured on a real control plane (kube-apiserver and kube-controller-manager 1.36.2, the gate on
//! in both): one value, synced at moments that the caller chooses. An oracle: it knows nothing of the code that it judges.

/// Milliseconds.
pub type Time = u64;

/// What a metric source answers: thousandths, or nothing.
pub type Metric = Option<i64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Value,
    AverageValue,
}

/// Which policies may scale up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    /// The API's own: 100 % or four pods, whichever is more.
    Default,
    Pods(u32),
    Percent(u32),
}

/// `ScalingActive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    ValidMetricFound,
    FailedGetExternalMetric,
    ScalingDisabled,
}

#[derive(Debug, Clone)]
pub struct Spec {
    pub min: u32,
    pub max: u32,
    pub kind: Target,
    /// Thousandths.
    pub target: i64,
    pub up: Up,
    /// Seconds.
    pub down_window: u64,
    /// Seconds.
    pub up_window: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self { min: 0, max: 1, kind: Target::AverageValue, target: 1, up: Up::Default, down_window: 15, up_window: 0 }
    }
}

impl Spec {
    /// Whether the API takes it.
    pub fn is_taken(&self) -> bool {
        self.target > 0 && self.down_window <= 3600 && self.up_window <= 3600 && self.min <= self.max
    }
}

/// The workload, which others scale too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Workload {
    pub replicas: u32,
    pub ready: u32,
}

#[derive(Debug, Clone)]
pub struct Hpa {
    pub spec: Spec,
    pub scaled_to_zero: bool,
    pub active: Active,
    recommendations: Vec<(Time, u32)>,
}

impl Hpa {
    /// Just applied, or seen for the first time by a controller that was just started: the present number is what it remembers.
    pub fn new(spec: Spec, now: Time, workload: Workload) -> Self {
        assert!(spec.is_taken(), "{spec:?}");
        let recommendations = vec![(now, workload.replicas)];
        Self { spec, scaled_to_zero: false, active: Active::ValidMetricFound, recommendations }
    }

    /// The controller starts anew: what it remembered is gone, the object's status is not.
    pub fn restarted(&mut self, now: Time, workload: Workload) {
        self.recommendations = vec![(now, workload.replicas)];
    }

    /// One look.
    pub fn sync(&mut self, now: Time, workload: &mut Workload, metric: Metric) {
        if workload.replicas == 0 && !self.scaled_to_zero {
            self.active = Active::ScalingDisabled;
            return;
        }
        let wanted = if workload.replicas < self.spec.min {
            self.spec.min
        } else if let Some(metric) = metric {
            self.active = Active::ValidMetricFound;
            let proposed = self.proposal(metric, *workload);
            self.stabilized(now, proposed, workload.replicas)
        } else {
            self.active = Active::FailedGetExternalMetric;
            return;
        };
        let wanted = self.limited(wanted, workload.replicas);
        if wanted != workload.replicas {
            self.scaled_to_zero = wanted == 0;
            workload.replicas = wanted;
            workload.ready = workload.ready.min(wanted);
        }
    }

    fn proposal(&self, metric: i64, workload: Workload) -> u32 {
        let ceil = |a: i64, b: i64| u32::try_from((a.max(0) + b - 1) / b).unwrap_or(u32::MAX);
        match self.spec.kind {
            Target::AverageValue => ceil(metric, self.spec.target),
            Target::Value if workload.replicas == 0 => ceil(metric, self.spec.target),
            Target::Value => {
                let ratio = metric as f64 / self.spec.target as f64;
                if (ratio - 1.0).abs() <= 0.1 {
                    workload.replicas
                } else {
                    (ratio * f64::from(workload.ready)).ceil() as u32
                }
            }
        }
    }

    /// Down only to the highest of the window, up only to the lowest of its own.
    fn stabilized(&mut self, now: Time, proposed: u32, current: u32) -> u32 {
        let within = |window: u64, at: Time| now - at < window * 1000;
        let (up, down) = (self.spec.up_window, self.spec.down_window);
        let of = |window: u64| self.recommendations.iter().filter(move |(at, _)| within(window, *at)).map(|(_, n)| *n);
        let floor = of(up).fold(proposed, u32::min);
        let ceiling = of(down).fold(proposed, u32::max);
        self.recommendations.retain(|(at, _)| within(up.max(down).max(1), *at));
        self.recommendations.push((now, proposed));
        if current < floor {
            floor
        } else if current > ceiling {
            ceiling
        } else {
            current
        }
    }

    fn limited(&self, wanted: u32, current: u32) -> u32 {
        let most = match self.spec.up {
            Up::Default => current.saturating_mul(2).max(current + 4),
            Up::Pods(pods) => current + pods,
            Up::Percent(percent) => current + (current * percent).div_ceil(100),
        };
        wanted.min(most).min(self.spec.max).max(self.spec.min.min(most))
    }
}

/// The table of what was measured, row by row.
mod measured {
    use super::*;

    /// At zero because the HPA itself put it there.
    fn asleep(spec: Spec) -> (Hpa, Workload, Time) {
        let mut workload = Workload { replicas: 1, ready: 1 };
        let mut hpa = Hpa::new(spec, 0, workload);
        let mut now = 0;
        while workload.replicas > 0 {
            now += 15_000;
            assert!(now < 100_000, "it never sleeps");
            hpa.sync(now, &mut workload, Some(0));
        }
        (hpa, workload, now)
    }

    fn next(hpa: &mut Hpa, workload: &mut Workload, now: &mut Time, metric: Metric) -> u32 {
        *now += 15_000;
        hpa.sync(*now, workload, metric);
        workload.replicas
    }

    #[test]
    fn a_quiet_metric_puts_it_to_zero_and_a_request_wakes_it_for_good() {
        let (mut hpa, mut workload, mut now) = asleep(Spec::default());
        assert!(now <= 32_000 && hpa.scaled_to_zero && hpa.active == Active::ValidMetricFound);
        for _ in 0..4 {
            assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        }
        assert!(!hpa.scaled_to_zero);
    }

    #[test]
    fn with_value_it_is_taken_back_while_the_pod_is_not_ready() {
        let (mut hpa, mut workload, mut now) = asleep(Spec { kind: Target::Value, ..Spec::default() });
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 0);
    }

    #[test]
    fn a_share_of_nothing_is_nothing_and_a_workload_that_began_at_zero_stays_there() {
        let (mut hpa, mut workload, mut now) = asleep(Spec { up: Up::Percent(100), ..Spec::default() });
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 0);
        let mut workload = Workload::default();
        let mut hpa = Hpa::new(Spec::default(), 0, workload);
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 0);
        assert_eq!(hpa.active, Active::ScalingDisabled);
        // The minimum repairs nothing, one pod by hand does.
        hpa.spec.min = 1;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 0);
        hpa.spec.min = 0;
        workload.replicas = 1;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        assert_eq!(hpa.active, Active::ValidMetricFound);
    }

    #[test]
    fn a_direct_wake_is_taken_back_unless_the_metric_shows_it_and_leaves_a_stale_condition() {
        let (mut hpa, mut workload, mut now) = asleep(Spec::default());
        now += 60_000;
        hpa.sync(now, &mut workload, Some(0));
        workload.replicas = 1;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(0)), 0);
        workload.replicas = 1;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        assert!(hpa.scaled_to_zero, "stale");
        workload.replicas = 0;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        // Now the HPA itself woke it: the next zero by hand is for good.
        workload.replicas = 0;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 0);
        assert_eq!(hpa.active, Active::ScalingDisabled);
    }

    #[test]
    fn deleted_and_made_again_at_zero_it_never_wakes_restarted_it_does() {
        let (mut hpa, mut workload, mut now) = asleep(Spec::default());
        let mut again = Hpa::new(Spec::default(), now, workload);
        assert_eq!(next(&mut again, &mut workload, &mut now, Some(1000)), 0);
        hpa.restarted(now, workload);
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
    }

    #[test]
    fn without_its_metric_it_keeps_what_it_has_and_wakes_when_it_is_back() {
        let (mut hpa, mut workload, mut now) = asleep(Spec::default());
        assert_eq!(next(&mut hpa, &mut workload, &mut now, None), 0);
        assert_eq!((hpa.active, hpa.scaled_to_zero), (Active::FailedGetExternalMetric, true));
        assert_eq!(next(&mut hpa, &mut workload, &mut now, Some(1000)), 1);
        assert_eq!(next(&mut hpa, &mut workload, &mut now, None), 1);
    }

    #[test]
    fn raising_the_minimum_wakes_what_it_put_to_sleep_itself() {
        let (mut hpa, mut workload, mut now) = asleep(Spec::default());
        hpa.spec.min = 1;
        assert_eq!(next(&mut hpa, &mut workload, &mut now, None), 1);
    }

    #[test]
    fn the_api_refuses_a_window_of_more_than_an_hour_and_a_target_of_nothing() {
        assert!(!Spec { down_window: 3601, ..Spec::default() }.is_taken());
        assert!(!Spec { target: 0, ..Spec::default() }.is_taken());
        assert!(Spec { down_window: 3600, ..Spec::default() }.is_taken());
    }
}
