//! `gateway.sleep` and `gateway.host.sleep`: which backends may sleep, and where that is written down.
//!
//! In deploy.toml the project, the folder and the lock are the app's own; a file of its own has to name them.

use super::nearest::nearest;
use super::problem::Problem;
use super::view::{Said, View};
use crate::fleet::model::{ServiceName, SleepPlace, SleepSpec};
use std::time::Duration;

/// What values must be to each other; `services` are those of deploy.toml.
pub(super) fn check(gateway: View<'_>, services: Option<&[String]>, problems: &mut Vec<Problem>) {
    let hosts = gateway.subs("host");
    let sleeps: Vec<View<'_>> = hosts.iter().filter(|host| host.has("sleep")).map(|host| host.sub("sleep")).collect();
    if sleeps.is_empty() {
        if let (true, Some(place)) = (gateway.has("sleep"), gateway.at("sleep")) {
            let text = "`gateway.sleep` has no effect: no host sleeps";
            problems.push(Problem::new(place, text).label("no effect").hint("say `sleep` in a `[[gateway.host]]`"));
        }
        return;
    }
    for host in hosts.iter().filter(|host| host.has("sleep")) {
        if let (Some(hold), Some(said)) = (host.duration("hold"), host.at("hold"))
            && hold == Duration::ZERO
        {
            let text = "a host that sleeps needs `hold`: nobody could wait until it is awake";
            problems.push(Problem::new(said, text).label("nobody waits").hint("say how long a request waits"));
        }
    }
    names(&sleeps, services, problems);
    if services.is_none() {
        place(gateway, &sleeps, problems);
    }
}

/// A service sleeps for one host, or never.
fn names(sleeps: &[View<'_>], services: Option<&[String]>, problems: &mut Vec<Problem>) {
    let mut sleeping: Vec<Said<'_>> = Vec::new();
    for said in sleeps.iter().flat_map(|sleep| sleep.said_all("services")) {
        if let Some(first) = sleeping.iter().find(|first| first.text == said.text) {
            problems.push(
                Problem::new(said.place, format!("the service `{}` is put to sleep twice", said.text))
                    .label("again here")
                    .second(first.place, "first here")
                    .hint("several names of one backend are `aliases` of one host"),
            );
        }
        if let Some(known) = services
            && !known.iter().any(|name| name == said.text)
        {
            let problem = Problem::new(said.place, format!("no service `{}` in deploy.toml", said.text));
            let hint = match nearest(said.text, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "what sleeps is deployed and verified like everything else: add a `[[service]]`".to_owned(),
            };
            problems.push(problem.label("not known").hint(hint));
        }
        sleeping.push(said);
    }
    for said in sleeps.iter().flat_map(|sleep| sleep.said_all("stay")) {
        if let Some(other) = sleeping.iter().find(|other| other.text == said.text) {
            problems.push(
                Problem::new(said.place, format!("the service `{}` sleeps and stays", said.text))
                    .label("never sleeps")
                    .second(other.place, "sleeps")
                    .hint("take it out of one of the two"),
            );
        }
    }
}

fn place(gateway: View<'_>, sleeps: &[View<'_>], problems: &mut Vec<Problem>) {
    let at = gateway.sub("sleep");
    for (name, hint) in [
        ("project", "add `[gateway.sleep]` with `project = \"mythex\"`, the name of the Compose project"),
        ("dir", "add `[gateway.sleep]` with `dir = \"/opt/mythex\"`, the release folder that deploys use"),
    ] {
        if let (false, Some(place)) = (at.has(name), sleeps.first().and_then(View::place)) {
            let text = format!("a host sleeps, and `gateway.sleep.{name}` is missing");
            problems.push(Problem::new(place, text).label("needs it").hint(hint));
        }
    }
}

/// Where, with what deploy.toml says of the app; `None` where nobody sleeps.
pub(super) fn build_place(gateway: View<'_>, root: Option<View<'_>>) -> Option<SleepPlace> {
    if !gateway.subs("host").iter().any(|host| host.has("sleep")) {
        return None;
    }
    let at = gateway.sub("sleep");
    let app = root.and_then(|root| root.text("app"));
    let own = |name: &str, key: &str| root.and_then(|root| root.sub(name).text(key));
    let dir = at.text("dir").or_else(|| own("release", "dir")).or_else(|| Some(format!("/opt/{}", app.as_ref()?)))?;
    let dir = dir.trim_end_matches('/').to_owned();
    Some(SleepPlace {
        project: at.text("project").or(app)?,
        lock: at.text("lock").or_else(|| own("lock", "path")).unwrap_or_else(|| format!("{dir}/lock")),
        docker: at.text("docker")?,
        dir,
    })
}

/// How one host sleeps.
pub(super) fn build(view: View<'_>) -> Option<SleepSpec> {
    let names = |name: &str| Some(view.texts(name)?.into_iter().map(ServiceName::new).collect());
    Some(SleepSpec {
        services: names("services")?,
        stay: names("stay")?,
        after: view.duration("after")?,
        quiet: view.duration("quiet")?,
        start: view.duration("start")?,
        awake: view.duration("awake")?,
        tries: view.number("tries")?,
        again: view.duration("again")?,
        busy: view.text("busy"),
    })
}
