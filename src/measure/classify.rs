//! What became of one request: one class each. Pure; used for the prober, the lab's truth and access logs alike.

use crate::event::Requests;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Answered by the app below 500, or by the balancer on purpose.
    Served,
    /// A 5xx of the app itself.
    AppError,
    /// The balancer answered for want of a server, or nobody answered.
    Nowhere,
    /// Headers came, the body broke off.
    CutShort,
    /// The 503 of a draining health endpoint.
    DrainSignal,
    /// The client went away.
    ClientGone,
}

/// Who made an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The balancer itself.
    Balancer,
    /// The balancer, because one of its rules says so: a fixed response, a redirect, a refusal at the door.
    Rule,
    /// The app behind it.
    App,
}

impl Who {
    /// By the `Server` header: an ALB's own answers say `awselb/2.0`, those of the app pass unchanged.
    #[must_use]
    pub fn by_server_header(server: Option<&[u8]>) -> Self {
        if server.is_some_and(|server| server.starts_with(b"awselb")) { Self::Balancer } else { Self::App }
    }

    /// By the page: HAProxy's own 502, 503 and 504 come without a `Server` header and with a page that it always writes the
    /// same (as seen of 2.6.12), unless it was given pages of its own (`errorfile`).
    #[must_use]
    pub fn by_page(status: u16, page: &[u8]) -> Self {
        let sentence: &[u8] = match status {
            502 => b"The server returned an invalid or incomplete response.",
            503 => b"No server is available to handle this request.",
            504 => b"The server didn't respond in time.",
            _ => return Self::App,
        };
        let own = page.starts_with(b"<html><body><h1>") && page.windows(sentence.len()).any(|part| part == sentence);
        if own { Self::Balancer } else { Self::App }
    }
}

/// How a request ended, as far as its class depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Headers came.
    Answer {
        /// The status.
        status: u16,
        /// Who made it.
        who: Who,
        /// Whether the path is the health check of a group that is drained by a flip.
        health: bool,
        /// Whether the body came whole.
        whole: bool,
    },
    /// Refused, reset, or no answer in time.
    NoAnswer,
    /// Our own client stopped.
    Stopped,
}

/// Judges a request.
#[must_use]
pub fn classify(outcome: Outcome) -> Class {
    match outcome {
        Outcome::NoAnswer => Class::Nowhere,
        Outcome::Stopped => Class::ClientGone,
        Outcome::Answer { status: 502..=504, who: Who::Balancer, .. } => Class::Nowhere,
        Outcome::Answer { status: 408 | 460, who: Who::Balancer, .. } => Class::ClientGone,
        Outcome::Answer { whole: false, .. } => Class::CutShort,
        Outcome::Answer { who: Who::Balancer | Who::Rule, .. } => Class::Served,
        Outcome::Answer { status: 503, health: true, .. } => Class::DrainSignal,
        Outcome::Answer { status: 500.., .. } => Class::AppError,
        Outcome::Answer { .. } => Class::Served,
    }
}

/// Adds one request of a class to the counts.
pub fn count(counts: &mut Requests, class: Class) {
    counts.total += 1;
    let field = match class {
        Class::Served => &mut counts.served,
        Class::AppError => &mut counts.app_errors,
        Class::Nowhere => &mut counts.nowhere,
        Class::CutShort => &mut counts.cut_short,
        Class::DrainSignal => &mut counts.drain_signals,
        Class::ClientGone => &mut counts.client_gone,
    };
    *field += 1;
}

/// What was counted since a mark.
#[must_use]
pub fn since(total: Requests, mark: Requests) -> Requests {
    Requests {
        total: total.total.saturating_sub(mark.total),
        served: total.served.saturating_sub(mark.served),
        app_errors: total.app_errors.saturating_sub(mark.app_errors),
        nowhere: total.nowhere.saturating_sub(mark.nowhere),
        cut_short: total.cut_short.saturating_sub(mark.cut_short),
        drain_signals: total.drain_signals.saturating_sub(mark.drain_signals),
        client_gone: total.client_gone.saturating_sub(mark.client_gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, who: Who, health: bool, whole: bool) -> Outcome {
        Outcome::Answer { status, who, health, whole }
    }

    #[test]
    fn each_request_gets_the_class_of_the_table() {
        use Who::{App, Balancer, Rule};
        let rows = [
            (answer(200, App, false, true), Class::Served),
            (answer(301, App, false, true), Class::Served),
            (answer(301, Balancer, false, true), Class::Served),
            (answer(404, App, false, true), Class::Served),
            (answer(499, App, false, true), Class::Served),
            (answer(500, App, false, true), Class::AppError),
            (answer(502, App, false, true), Class::AppError),
            (answer(503, App, false, true), Class::AppError),
            (answer(503, App, true, true), Class::DrainSignal),
            (answer(500, App, true, true), Class::AppError),
            (answer(200, App, true, true), Class::Served),
            (answer(502, Balancer, false, true), Class::Nowhere),
            (answer(503, Balancer, false, true), Class::Nowhere),
            (answer(503, Balancer, true, true), Class::Nowhere),
            (answer(504, Balancer, false, false), Class::Nowhere),
            (answer(400, Balancer, false, true), Class::Served),
            (answer(403, Balancer, false, true), Class::Served),
            (answer(500, Balancer, false, true), Class::Served),
            (answer(561, Balancer, false, true), Class::Served),
            (answer(408, Balancer, false, true), Class::ClientGone),
            (answer(460, Balancer, false, true), Class::ClientGone),
            (answer(408, App, false, true), Class::Served),
            (answer(503, Rule, false, true), Class::Served),
            (answer(503, Rule, true, true), Class::Served),
            (answer(408, Rule, false, true), Class::Served),
            (answer(200, App, false, false), Class::CutShort),
            (answer(500, App, false, false), Class::CutShort),
            (Outcome::NoAnswer, Class::Nowhere),
            (Outcome::Stopped, Class::ClientGone),
        ];
        for (outcome, class) in rows {
            assert_eq!(classify(outcome), class, "{outcome:?}");
        }
    }

    #[test]
    fn the_total_is_the_sum_of_the_classes() {
        let mut counts = Requests::default();
        let all =
            [Class::Served, Class::AppError, Class::Nowhere, Class::CutShort, Class::DrainSignal, Class::ClientGone];
        all.into_iter().for_each(|class| count(&mut counts, class));
        assert_eq!(counts.total, 6);
        assert_eq!(counts.lost(), 2);
        assert_eq!(since(counts, counts), Requests::default());
    }

    #[test]
    fn haproxys_own_pages_are_known_and_an_apps_are_not() {
        let page = b"<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n";
        assert_eq!(Who::by_page(503, page), Who::Balancer);
        assert_eq!(Who::by_page(502, page), Who::App, "another status, another page");
        assert_eq!(Who::by_page(503, b"<html><body><h1>503</h1>we are cooking</body></html>"), Who::App);
        assert_eq!(Who::by_page(503, b""), Who::App);
        assert_eq!(Who::by_page(500, page), Who::App);
    }

    #[test]
    fn the_balancer_is_known_by_its_server_header() {
        assert_eq!(Who::by_server_header(Some(b"awselb/2.0")), Who::Balancer);
        assert_eq!(Who::by_server_header(Some(b"nginx")), Who::App);
        assert_eq!(Who::by_server_header(None), Who::App);
    }
}
