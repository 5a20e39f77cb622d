//! A service of a lab's server: a real process that listens, answers what deploy.toml expects, drains, and really stops.
//!
//! It is the own executable with the hidden subcommand `lab-service`. It is told what it is by an environment variable,
//! takes orders on stdin and says on stdout what it does; the end of stdin means that the lab is gone, and ends it.

mod answer;
mod spec;
mod worker;

pub(super) use spec::{Answer, Kind, Listen, Said};
pub use spec::{ENVIRONMENT, Fault, ServiceSpec};

use answer::App;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Where a service that answers health checks tells who asked; no path of a user's begins so.
pub(super) const NODES: &str = "/.handover-lab/nodes";
/// What `lab-service` ends with when it does not know what it is.
const USAGE: i32 = 2;
/// What a crash that was ordered ends with.
const CRASHED: i32 = 3;

/// The hidden subcommand `lab-service`: plays the service that the environment describes; the exit code.
#[must_use]
pub fn run() -> i32 {
    let spec = std::env::var(ENVIRONMENT).map_err(|error| error.to_string());
    let spec = spec.and_then(|text| serde_json::from_str::<ServiceSpec>(&text).map_err(|error| error.to_string()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match (spec, runtime) {
        (Ok(spec), Ok(runtime)) => runtime.block_on(play(spec)),
        (Err(why), _) => failed(&format!("{ENVIRONMENT}: {why}")),
        (_, Err(why)) => failed(&why.to_string()),
    }
}

fn failed(why: &str) -> i32 {
    log(why);
    USAGE
}

/// One line for the service's log.
fn log(line: &str) {
    // A log that is gone is no reason to end.
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// One line for the lab.
fn say(said: &Said) {
    let mut out = std::io::stdout().lock();
    drop(serde_json::to_writer(&mut out, said));
    drop(writeln!(out));
    drop(out.flush());
}

async fn play(spec: ServiceSpec) -> i32 {
    let mut orders = orders();
    let app = Arc::new(App::new(spec));
    let (started, _) = watch::channel(());
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return failed("signals cannot be taken");
    };
    let mut doors = JoinSet::new();
    let mut starting = Box::pin(app.sleep(app.spec.start));
    let mut crash = Box::pin(app.crash());
    let mut running = false;
    loop {
        tokio::select! {
            () = &mut starting, if !running => {
                running = true;
                if let Err(why) = open(&app, &mut doors, &started).await {
                    return failed(&why);
                }
                worker::begin(&app);
                log(&format!("{} runs release {}", app.spec.service, app.spec.release));
                say(&Said::Ready);
            }
            code = &mut crash => { log("crash, as ordered"); return code; }
            order = orders.recv() => match order {
                None => return 0,
                Some(order) => obey(&app, running, &order),
            },
            _ = term.recv() => if app.spec.fault != Some(Fault::IgnoresTerm) { break },
            // Ctrl-C at the terminal of a rehearsal is for the rehearsal; it stops us in order.
            _ = int.recv() => {}
        }
    }
    stop(&app, doors, &started).await;
    0
}

fn obey(app: &App, running: bool, order: &str) {
    match order.trim() {
        "drain" => app.drain(true),
        "undrain" => app.drain(false),
        "check" => say(&Said::Checked { ok: running && app.spec.fault != Some(Fault::FailsVerify) }),
        other => log(&format!("an unknown order: {other}")),
    }
}

/// Lines of stdin. A thread of its own: a read of a pipe cannot be given up, and must not hold the process.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

async fn open(app: &Arc<App>, doors: &mut JoinSet<()>, stopping: &watch::Sender<()>) -> Result<(), String> {
    for listen in app.spec.listens.clone() {
        let listener = bind(listen.at).await.map_err(|error| format!("{}: {error}", listen.at))?;
        log(&format!("listens on {} for port {}", listen.at, listen.port));
        doors.spawn(accept(listener, listen.port, Arc::clone(app), stopping.subscribe()));
    }
    Ok(())
}

/// The port was just left by the process before us; its last connections may still hold it for a moment.
async fn bind(at: std::net::SocketAddr) -> std::io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match TcpListener::bind(at).await {
            Err(_) if tries < 20 => tokio::time::sleep(Duration::from_millis(25)).await,
            result => return result,
        }
        tries += 1;
    }
}

/// Takes connections until the service stops; then waits until the last of them is finished.
async fn accept(listener: TcpListener, port: u16, app: Arc<App>, mut stopping: watch::Receiver<()>) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => drop(clients.spawn(serve(stream, (peer.ip(), port), Arc::clone(&app), stopping.clone()))),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            _ = stopping.changed() => break,
        }
        while clients.try_join_next().is_some() {}
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, ends: (IpAddr, u16), app: Arc<App>, mut stopping: watch::Receiver<()>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(app.answer(ends, request).await) }
    });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return drop(ended),
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

/// SIGTERM: finishes what it has, takes no more, needs its time, ends.
async fn stop(app: &App, mut doors: JoinSet<()>, stopping: &watch::Sender<()>) {
    log("SIGTERM");
    if let Some(serves_on) = app.spec.serves_on {
        app.drain(true);
        app.sleep(serves_on).await;
    }
    let needs = app.sleep(app.spec.stop);
    stopping.send_replace(());
    let finish = async { while doors.join_next().await.is_some() {} };
    tokio::join!(needs, finish);
    log("stopped in order");
}
