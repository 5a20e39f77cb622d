#![allow(missing_docs, clippy::all, clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]
use handover::adapters::ssh;
use handover::rollout::port::Server;
use handover::server::wire::*;
use handover::fleet::model::*;
use std::time::{Duration, Instant};
use std::collections::BTreeMap;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--version") => { println!("handover 0"); return; }
        Some("agent") => std::process::exit(handover::server::agent::serve(tokio::io::stdin(), tokio::io::stdout()).await),
        _ => {}
    }
    let loaded = match handover::config::load(std::path::Path::new(&args[1]), None) { Ok(l) => l, Err(e) => { println!("{e:?}"); return } };
    let fleet = loaded.fleet;
    let run = Run { id: format!("run-{}", std::process::id()), who: "me@here".into(), what: "try".into() };
    let servers = ssh::servers(&fleet, &run, ssh::Options::from_env());
    let server = servers[&ServerName::new(&args[2])].clone();
    let dir = std::path::Path::new(&args[1]).parent().unwrap().to_owned();
    let mut files = vec![];
    for (name, secret) in std::iter::once((&fleet.release.compose, false)).chain(fleet.release.files.iter().map(|f| (f, false))).chain(fleet.release.env.iter().map(|f| (f, true))) {
        files.push(Blob::bytes(name, &std::fs::read(dir.join(name)).unwrap(), secret));
    }
    let mut resolved: Option<Resolved> = None;
    let mut release = ReleaseId::new("none");
    for word in &args[3..] {
        let began = Instant::now();
        let (name, arg) = word.split_once('=').unwrap_or((word, ""));
        let request = match name {
            "observe" => Request::Observe,
            "lockdeploy" => Request::LockDeploy,
            "unlockdeploy" => Request::UnlockDeploy,
            "resolve" => Request::Resolve { files: files.clone(), compose: fleet.release.compose.clone(), vars: if arg.is_empty() { BTreeMap::new() } else {[("TAG".to_owned(), arg.to_owned())].into()} },
            "stage" => {
                let r = resolved.as_ref().unwrap();
                let mut f: Vec<Blob> = files.iter().filter(|f| f.name != fleet.release.compose).cloned().collect();
                f.push(Blob::text(handover::fleet::release::DEFINITION, &r.definition));
                Request::Stage { manifest: r.manifest.clone(), files: f }
            }
            "pull" => Request::Pull { release: release.clone() },
            "adopt" => Request::Adopt,
            "lock" => Request::Lock { wait: Duration::from_secs(arg.parse().unwrap_or(0)) },
            "unlock" => Request::Unlock { record: "tried".into() },
            "flip" => Request::Flip { drained: true },
            "back" => Request::Flip { drained: false },
            "look" => Request::Look,
            "count" => Request::Count,
            "stop" => Request::Stop,
            "start" => Request::Start { release: release.clone() },
            "verify" => Request::Verify { release: release.clone() },
            "switch" => Request::Switch { release: release.clone() },
            "absent" => Request::Absent { absence: Some(Absence { reason: "try".into(), ends_when_verified: true, since: 0 }) },
            "present" => Request::Absent { absence: None },
            "freeze" => Request::Freeze { reason: arg.into() },
            "unfreeze" => Request::Unfreeze,
            "sleep" => { tokio::time::sleep(Duration::from_secs_f64(arg.parse().unwrap())).await; continue }
            "id" => { release = ReleaseId::new(arg); continue }
            "close" => { server.close().await; println!("closed {:?}", began.elapsed()); continue }
            "exit" => std::process::exit(9),
            "bg" => { let s = server.clone(); let r = match arg { "stop" => Request::Stop, "lock" => Request::Lock { wait: Duration::from_secs(60) }, _ => Request::Start { release: release.clone() } };
                tokio::spawn(async move { let b = Instant::now(); let x = s.call(r).await; println!("BG {x:?} {:?}", b.elapsed()) }); tokio::time::sleep(Duration::from_secs(1)).await; continue }
            other => panic!("{other}"),
        };
        let result = server.call(request).await;
        let took = began.elapsed();
        match &result {
            Ok(Reply::Resolved(r)) => { println!("{word}: {:?} {:?} {took:?}", r.manifest, r.warnings); release = r.manifest.id.clone(); resolved = Some((**r).clone()); }
            Ok(Reply::Adopted(m)) => { println!("{word}: {m:?} {took:?}"); release = m.id.clone(); }
            Ok(Reply::Facts(f)) => println!("{word}: {f:#?} {took:?}"),
            other => println!("{word}: {other:?} {took:?}"),
        }
    }
}
