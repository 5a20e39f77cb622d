//! The async shell around the machine: it fetches and obeys, and decides nothing.

use super::machine::{Effect, Ending, Input, Machine, Setup};
use super::port::{Balancer, Here, Server, ServerError};
use crate::clock::{Clock, Stamp};
use crate::diag::{Exit, Problem};
use crate::event::{Event, HookState, Line, Sink};
use crate::fleet::model::{Hook, ServerName, show_duration};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Where the effects go.
#[derive(Debug)]
pub struct Ports<S, B> {
    /// The servers.
    pub servers: BTreeMap<ServerName, Arc<S>>,
    /// The balancer.
    pub balancer: Arc<B>,
    /// Where the team's own commands are run.
    pub here: Arc<dyn Here>,
}

impl<S, B> Clone for Ports<S, B> {
    fn clone(&self) -> Self {
        Self { servers: self.servers.clone(), balancer: Arc::clone(&self.balancer), here: Arc::clone(&self.here) }
    }
}

/// What reaches a run from outside.
#[derive(Debug)]
pub struct Outside {
    /// How many interrupts (SIGINT, SIGTERM) there were.
    pub interrupts: watch::Receiver<u32>,
    /// How many requests were lost so far.
    pub lost: watch::Receiver<u64>,
}

/// Drives a run to its end.
pub async fn drive<S: Server, B: Balancer>(
    setup: Setup,
    ports: &Ports<S, B>,
    clock: &Clock,
    sink: &dyn Sink,
    mut outside: Outside,
) -> Ending {
    let mut shell = Shell {
        ports,
        clock,
        sink,
        machine: Machine::new(setup),
        running: JoinSet::new(),
        answers: mpsc::unbounded_channel(),
        said: mpsc::unbounded_channel(),
    };
    let mut interrupts = *outside.interrupts.borrow_and_update();
    let (mut may_interrupt, mut may_lose) = (true, true);
    // A signal that came between the preflight and here counts as well.
    if interrupts > 0 && shell.feed(Input::Interrupt) || shell.feed(Input::Tick) {
        return shell.machine.ending();
    }
    loop {
        let wake = shell.machine.wake().unwrap_or_else(|| clock.now() + Duration::from_secs(1));
        let input = tokio::select! {
            biased;
            changed = outside.interrupts.changed(), if may_interrupt => {
                may_interrupt = changed.is_ok();
                let before = std::mem::replace(&mut interrupts, *outside.interrupts.borrow_and_update());
                match interrupts {
                    now if now == before => Input::Tick,
                    1 => Input::Interrupt,
                    _ => return at_once(shell.machine.ending()),
                }
            }
            // Before the answer: what a command printed was printed before its end.
            Some(said) = shell.said.1.recv() => {
                shell.tell(said);
                continue;
            }
            Some(answer) = shell.answers.1.recv() => answer,
            changed = outside.lost.changed(), if may_lose => {
                may_lose = changed.is_ok();
                Input::Lost(*outside.lost.borrow_and_update())
            }
            () = clock.sleep_until(wake) => Input::Tick,
        };
        if shell.feed(input) {
            return shell.machine.ending();
        }
    }
}

/// The second signal: nothing is waited for; closing the connections hands every server to its own dead-man.
fn at_once(mut ending: Ending) -> Ending {
    ending.outcome = "interrupted";
    ending.problem = Some(
        Problem::new(
            Exit::Interrupted,
            "interrupted twice: each server's agent frees its lock and flips a drained server back by itself",
        )
        .hint("`handover plan` says how every server stands, `handover resume` finishes what broke off"),
    );
    ending
}

struct Shell<'a, S, B> {
    ports: &'a Ports<S, B>,
    clock: &'a Clock,
    sink: &'a dyn Sink,
    machine: Machine,
    running: JoinSet<()>,
    answers: (mpsc::UnboundedSender<Input>, mpsc::UnboundedReceiver<Input>),
    said: (mpsc::UnboundedSender<Said>, mpsc::UnboundedReceiver<Said>),
}

/// A line that a command printed.
struct Said {
    hook: Hook,
    server: ServerName,
    line: String,
}

impl<S: Server, B: Balancer> Shell<'_, S, B> {
    /// Gives the machine one input and does what it says; true when it is over.
    fn feed(&mut self, input: Input) -> bool {
        let now = self.clock.now();
        let mut ended = false;
        for effect in self.machine.on(now, input) {
            ended |= self.obey(now, effect);
        }
        while self.running.try_join_next().is_some() {}
        ended
    }

    fn tell(&self, Said { hook, server, line }: Said) {
        let event = Event::Hook { hook, server: Some(server), state: HookState::Said, seconds: 0.0, what: Some(line) };
        self.sink.take(Line::new(self.clock.now(), event));
    }

    fn obey(&mut self, now: Stamp, effect: Effect) -> bool {
        let answers = self.answers.0.clone();
        let send = move |input| drop(answers.send(input));
        match effect {
            Effect::Say(event) => self.sink.take(Line::new(now, event)),
            Effect::End => return true,
            Effect::Call { server, ticket, request, within } => {
                let Some(port) = self.ports.servers.get(&server).cloned() else {
                    send(Input::Reply {
                        server,
                        ticket,
                        result: Err(ServerError::Unreachable("it was never connected to".into())),
                    });
                    return false;
                };
                let wall = self.clock.wall(within);
                self.running.spawn(async move {
                    let result = tokio::time::timeout(wall, port.call(request)).await;
                    let result = result.unwrap_or_else(|_| Err(ServerError::Late(show_duration(within))));
                    send(Input::Reply { server, ticket, result });
                });
            }
            Effect::Hook { server, ticket, command } => {
                let (here, tell, hook) = (Arc::clone(&self.ports.here), self.said.0.clone(), command.hook);
                self.running.spawn(async move {
                    let (said, mut lines) = mpsc::unbounded_channel();
                    let name = server.clone();
                    let telling = async {
                        while let Some(line) = lines.recv().await {
                            drop(tell.send(Said { hook, server: name.clone(), line }));
                        }
                    };
                    let (result, ()) = tokio::join!(here.run(command, said), telling);
                    send(Input::Hook { server, ticket, result });
                });
            }
            Effect::Health { group } => {
                let balancer = Arc::clone(&self.ports.balancer);
                self.running.spawn(async move {
                    let result = balancer.health(&group).await;
                    send(Input::Health { group, result });
                });
            }
            Effect::Register { server, ticket, targets } => {
                let balancer = Arc::clone(&self.ports.balancer);
                self.running.spawn(async move {
                    let result = balancer.register(&targets).await;
                    send(Input::Targets { server, ticket, result });
                });
            }
            Effect::Deregister { server, ticket, targets } => {
                let balancer = Arc::clone(&self.ports.balancer);
                self.running.spawn(async move {
                    let result = balancer.deregister(&targets).await;
                    send(Input::Targets { server, ticket, result });
                });
            }
        }
        false
    }
}
