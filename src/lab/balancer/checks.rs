//! Makes the health checks that the model says are due, over real connections, and tells it what came of them.

use super::core::Core;
use super::lock;
use super::model::CheckOrder;
use crate::fleet::health::Check;
use crate::fleet::model::TargetReason;
use crate::lab::fetch::{Ask, NoAnswer, fetch};
use hyper::Method;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What the AWS user guide says a health check's `User-Agent` is.
const AGENT: &str = "ELB-HealthChecker/2.0";

/// Checks until it is aborted.
pub(super) async fn run(core: Arc<Core>) {
    let mut running = JoinSet::new();
    loop {
        let (orders, next) = {
            let mut model = lock(&core.model);
            let orders = model.due(core.clock.now());
            (orders, model.next_check())
        };
        for order in orders {
            running.spawn(check(Arc::clone(&core), order));
        }
        while running.try_join_next().is_some() {}
        let due = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = core.wake.notified() => {}
        }
    }
}

async fn check(core: Arc<Core>, order: CheckOrder) {
    core.delays.note(core.clock.wall(core.clock.now().since(order.due)));
    let (check, status) = ask(&core, &order).await;
    lock(&core.model).record_answer(&order, check, status, core.clock.now());
}

async fn ask(core: &Core, order: &CheckOrder) -> (Check, Option<u16>) {
    let timeout = core.clock.wall(order.timeout);
    let fail = |reason| (Check::Fail(reason), None);
    let Some(group) = core.group(&order.group) else { return fail(TargetReason::FailedHealthChecks) };
    let (id, port) = &order.place;
    let Some(at) = core.address(&(id.clone(), group.health_port.unwrap_or(*port))) else {
        // Nobody answers at an address that is not there.
        tokio::time::sleep(timeout).await;
        return fail(TargetReason::Timeout);
    };
    let host = at.to_string();
    let ask = Ask {
        at,
        method: &Method::GET,
        path: &group.path,
        host: &host,
        agent: AGENT,
        from: core.source(order.node, at),
    };
    match fetch(ask, timeout).await {
        Ok((status, _)) if group.matcher.passes(status) => (Check::Pass, Some(status)),
        Ok((status, _)) => (Check::Fail(TargetReason::ResponseCodeMismatch), Some(status)),
        Err(NoAnswer::Late) => fail(TargetReason::Timeout),
        Err(NoAnswer::Broken(_)) => fail(TargetReason::FailedHealthChecks),
    }
}
