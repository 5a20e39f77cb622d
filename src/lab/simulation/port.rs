//! The port to a simulated server: a connection that can be slow, cut or broken, and that is made again.

use super::agent::{TICK, Worker};
use super::dead_man::watch;
use super::faults::Fault;
use super::machine::{Agent, AgentId};
use super::world::{Inner, World};
use crate::fleet::model::ServerName;
use crate::fleet::recovery::State;
use crate::rollout::port::{Server, ServerError};
use crate::server::wire::{Reply, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// So often one request is asked again over a new connection.
const TIMES: usize = 3;
/// A connection that is not made by then is given up.
const CONNECT: Duration = Duration::from_secs(10);

/// A server, as one run sees it.
#[derive(Debug)]
pub(super) struct SimPort {
    pub(super) world: World,
    pub(super) server: ServerName,
    pub(super) run: String,
    /// The agent that the last connection started, and its one request at a time.
    pub(super) link: Mutex<Option<(AgentId, Arc<Mutex<()>>)>>,
}

impl Server for SimPort {
    async fn call(&self, request: Request) -> Result<Reply, ServerError> {
        let mut answer = self.once(&request).await;
        for _ in 0..TIMES {
            let Err(ServerError::Lost(why)) = answer else { break };
            self.connected_again().await.map_err(|_| ServerError::Lost(why))?;
            answer = self.once(&request).await;
        }
        answer
    }
}

impl SimPort {
    /// Asks once, over the connection that there is.
    async fn once(&self, request: &Request) -> Result<Reply, ServerError> {
        let (agent, work) = self.connected().await?;
        if matches!(request, Request::Unlock { .. }) {
            self.world.with(|inner| self.machine(inner, |machine| machine.unlocks += 1));
        }
        let worker = Worker { world: self.world.clone(), server: self.server.clone(), run: self.run.clone(), agent };
        let request = request.clone();
        // Whoever asked may go away; the operation goes on.
        let done = tokio::spawn(async move {
            let _one_at_a_time = work.lock().await;
            worker.carry_out(request).await
        });
        // An answer that was given while the line was cut arrives when it is mended.
        let done = async {
            let done = done.await;
            while self.world.is_cut(&self.server) {
                self.world.clock.sleep(TICK).await;
            }
            done
        };
        let lost = self.until_lost(agent);
        tokio::select! {
            biased;
            why = lost => Err(ServerError::Lost(why)),
            done = done => match done {
                Ok(done) => done.map_err(ServerError::Failed),
                Err(_) => Err(ServerError::Lost("the agent broke".into())),
            },
        }
    }

    fn machine<T>(&self, inner: &mut Inner, act: impl FnOnce(&mut super::machine::Machine) -> T) -> Option<T> {
        inner.machines.get_mut(&self.server).map(act)
    }

    /// The agent; a new one where there is none, or where the last one was found gone.
    async fn connected(&self) -> Result<(AgentId, Arc<Mutex<()>>), ServerError> {
        let mut link = self.link.lock().await;
        let slow = self.world.with(|inner| {
            inner.faults.iter().find_map(|fault| match fault {
                Fault::Slow(at, delay) if *at == self.server => Some(*delay),
                _ => None,
            })
        });
        self.world.clock.sleep(slow.unwrap_or_default() / 2).await;
        if let Some((agent, work)) = link.as_ref() {
            let gone = self.world.with(|inner| {
                let agent = inner.machines.get(&self.server).and_then(|machine| machine.agents.get(agent));
                agent.is_none_or(|agent| agent.gone)
            });
            if !gone {
                return Ok((*agent, Arc::clone(work)));
            }
        }
        if self.world.is_cut(&self.server) {
            self.world.clock.sleep(CONNECT).await;
            if self.world.is_cut(&self.server) {
                return Err(ServerError::Unreachable("connecting took more than 10 s".into()));
            }
        }
        let before = link.take();
        let agent = self.world.with(|inner| {
            let id = inner.next_agent;
            inner.next_agent += 1;
            let agent = Agent { run: self.run.clone(), gone: false, ended: false, yields: false };
            self.machine(inner, |machine| machine.agents.insert(id, agent));
            id
        });
        self.succeeds(agent, before).await;
        let work = Arc::new(Mutex::new(()));
        *link = Some((agent, Arc::clone(&work)));
        tokio::spawn(watch(self.world.clone(), self.server.clone(), agent, Arc::clone(&work)));
        Ok((agent, work))
    }

    /// The agent before finishes what it does and hands its locks over; what a killed one had is taken up again.
    async fn succeeds(&self, agent: AgentId, before: Option<(AgentId, Arc<Mutex<()>>)>) {
        let had = self.world.with(|inner| {
            self.machine(inner, |machine| {
                if let Some(before) = before.as_ref().and_then(|(id, _)| machine.agents.get_mut(id)) {
                    before.yields = true;
                }
                let ours = |note: &Option<String>| note.as_deref() == Some(self.run.as_str());
                (ours(&machine.deploy_note), ours(&machine.lock_note))
            })
        });
        if let Some((id, work)) = before {
            let _it_has_finished = work.lock().await;
            self.world.with(|inner| inner.end_agent(&self.server, id));
        }
        let Some((deploy, server)) = had else { return };
        self.world.with(|inner| {
            self.machine(inner, |machine| {
                if deploy && machine.deploy_lock.is_none() {
                    machine.deploy_lock = Some(agent);
                }
                if server && machine.state != State::Idle && machine.lock.is_none() {
                    machine.lock = Some(agent);
                }
            })
        });
    }

    /// A connection instead of one that was lost, as long as the agent there waits for it.
    async fn connected_again(&self) -> Result<(), ServerError> {
        let until = self.world.clock.now() + self.world.with(|inner| inner.fleet.lock.lease);
        loop {
            match self.connected().await {
                Err(ServerError::Unreachable(_)) if self.world.clock.now() < until => {
                    self.world.clock.sleep(Duration::from_secs(1)).await;
                }
                connected => return connected.map(drop),
            }
        }
    }

    /// What is held there is kept up while nobody asks.
    pub(super) async fn keep_up(&self) {
        self.world.clock.sleep(Duration::from_secs(1)).await;
        let dead = self.world.with(|inner| inner.dead_runs.contains_key(&self.run));
        let connected = self.link.lock().await.is_some();
        if connected && !dead {
            // Whoever asks next is told if it could not be done.
            drop(self.connected_again().await);
        }
    }

    /// Ends when this side knows that the agent is gone.
    async fn until_lost(&self, agent: AgentId) -> String {
        let lease = self.world.with(|inner| inner.fleet.lock.lease);
        let mut silent = Duration::ZERO;
        loop {
            self.world.clock.sleep(TICK).await;
            let gone = self
                .world
                .with(|inner| self.machine(inner, |machine| machine.agents.get(&agent).is_none_or(|agent| agent.gone)));
            let cut = self.world.is_cut(&self.server);
            silent = if cut { silent + TICK } else { Duration::ZERO };
            if gone.unwrap_or(true) && !cut {
                return "the stream ended".into();
            }
            if silent >= lease {
                self.world.with(|inner| {
                    self.machine(inner, |machine| machine.agents.get_mut(&agent).map(|agent| agent.gone = true))
                });
                return "nothing was heard from the agent".into();
            }
        }
    }
}

impl World {
    pub(super) fn is_cut(&self, server: &ServerName) -> bool {
        let now = self.clock.now();
        self.with(|inner| {
            let since = inner.since(now);
            inner.has(|fault| matches!(fault, Fault::Cut(at, span) if at == server && span.holds(since)))
        })
    }
}

/// Every server, as one run sees it.
pub(super) fn ports(world: &World, run: &str) -> BTreeMap<ServerName, Arc<SimPort>> {
    let names: Vec<ServerName> = world.with(|inner| inner.machines.keys().cloned().collect());
    let port = |server: &ServerName| SimPort {
        world: world.clone(),
        server: server.clone(),
        run: run.to_owned(),
        link: Mutex::new(None),
    };
    let ports: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), Arc::new(port(name)))).collect();
    world.with(|inner| inner.ports.extend(ports.values().map(Arc::downgrade)));
    ports
}
