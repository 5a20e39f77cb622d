//! What became of the request of one line, and why it was lost. The class comes from `classify`, which judges live requests too; here
//! the log's words are put into its terms. The causes are those of the user guide's troubleshooting page (load-balancer-troubleshooting).

use super::line::Record;
use crate::measure::classify::{Class, Outcome, Who, classify};
use serde::Serialize;

/// Why a request was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No target was chosen: the group had none.
    NoTarget,
    /// The target refused the connection, or could not be reached.
    NeverConnected,
    /// The target took the request and closed, or answered what cannot be read.
    NoCompleteResponse,
    /// 504 after the 10 s that an ALB gives a connection.
    ConnectTimeout,
    /// The target took the request and did not answer within the idle timeout.
    AnswerTimeout,
    /// 504, and the log does not tell which of the two.
    Timeout,
    /// A Lambda function failed.
    Lambda,
    /// The target answered, and the client got an error of the balancer instead.
    AnswerLost,
    /// The log has no status: nobody answered.
    NoStatus,
}

impl Cause {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::NoTarget,
        Self::NeverConnected,
        Self::NoCompleteResponse,
        Self::ConnectTimeout,
        Self::AnswerTimeout,
        Self::Timeout,
        Self::Lambda,
        Self::AnswerLost,
        Self::NoStatus,
    ];

    /// For people.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::NoTarget => "no target chosen",
            Self::NeverConnected => "never connected: refused or unreachable",
            Self::NoCompleteResponse => "connected, no complete response",
            Self::ConnectTimeout => "timeout: no connection within 10 s",
            Self::AnswerTimeout => "timeout: no answer within the idle timeout",
            Self::Timeout => "timeout: no connection, or no answer",
            Self::Lambda => "the Lambda function failed",
            Self::AnswerLost => "answered, but the answer did not come through",
            Self::NoStatus => "no status: nobody answered",
        }
    }

    /// For machines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::NeverConnected => "never_connected",
            Self::NoCompleteResponse => "no_complete_response",
            Self::ConnectTimeout => "connect_timeout",
            Self::AnswerTimeout => "answer_timeout",
            Self::Timeout => "timeout",
            Self::Lambda => "lambda",
            Self::AnswerLost => "answer_lost",
            Self::NoStatus => "no_status",
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The class.
    pub class: Class,
    /// Why it was lost, if it was.
    pub cause: Option<Cause>,
    /// A 502, 503 or 504 of the balancer that no rule forwarded: refused at the door, but worth a word.
    pub unforwarded: bool,
}

/// Judges a line. `health` says whether a path is a health check of a group that is drained by a flip.
#[must_use]
pub fn judge(record: &Record<'_>, health: impl FnOnce(&[u8]) -> bool) -> Judged {
    let own_5xx = matches!(record.status, Some(502..=504));
    let door = door(record);
    let outcome = match (record.status, record.target_status) {
        (None, _) => Outcome::NoAnswer,
        (Some(status), Some(target)) if status == target => {
            // Only a 503 can be a drain signal: the others need no look at the path.
            Outcome::Answer { status, who: Who::App, health: status == 503 && health(record.path()), whole: true }
        }
        // The app answered, and its answer did not come through.
        (Some(_), Some(status)) if own_5xx => Outcome::Answer { status, who: Who::App, health: false, whole: false },
        (Some(status), _) => {
            let refused = door == Door::Rule || (door == Door::None && own_5xx);
            let who = if refused { Who::Rule } else { Who::Balancer };
            Outcome::Answer { status, who, health: false, whole: true }
        }
    };
    let class = classify(outcome);
    let cause = match class {
        Class::Nowhere => Some(nowhere(record)),
        Class::CutShort => Some(Cause::AnswerLost),
        _ => None,
    };
    Judged { class, cause, unforwarded: own_5xx && record.target_status.is_none() && door == Door::None }
}

/// What the rules did with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// They sent it to a group; so it is understood where an old log does not say.
    Forward,
    /// They answered it on purpose.
    Rule,
    /// None of the two: WAF, authentication, or nothing at all.
    None,
}

fn door(record: &Record<'_>) -> Door {
    let Some(actions) = record.actions else { return Door::Forward };
    let did = |action: &[u8]| actions.split(|byte| *byte == b',').any(|one| one.trim_ascii() == action);
    if did(b"forward") {
        Door::Forward
    } else if did(b"fixed-response") || did(b"redirect") {
        Door::Rule
    } else {
        Door::None
    }
}

/// By codes first: the user guide lets a 504 have -1 for its times whether or not the target was reached.
fn nowhere(record: &Record<'_>) -> Cause {
    let [to_target, by_target, _] = record.took;
    if record.error_reason.starts_with(b"Lambda") {
        return Cause::Lambda;
    }
    match record.status {
        None => Cause::NoStatus,
        Some(504) if by_target.is_some() => Cause::AnswerTimeout,
        Some(504) => timeout(record),
        _ if record.target.is_none() => Cause::NoTarget,
        _ if to_target.is_none() && by_target.is_none() => Cause::NeverConnected,
        _ => Cause::NoCompleteResponse,
    }
}

/// A connection is given up after 10 s (user guide, HTTP 504); what lasted longer was connected. Shorter can only be an idle timeout
/// below 10 s, which the log does not tell from a clock that was set.
fn timeout(record: &Record<'_>) -> Cause {
    match record.created.map(|created| record.time - created) {
        Some(9_500_000..=11_000_000) => Cause::ConnectTimeout,
        Some(11_000_001..) => Cause::AnswerTimeout,
        _ => Cause::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(status: u16, target: Option<u16>, actions: &'static str) -> Record<'static> {
        Record {
            status: Some(status),
            target_status: target,
            target: Some(b"198.51.100.1:80"),
            actions: Some(actions.as_bytes()),
            request: b"GET http://shop.example:80/health HTTP/1.1",
            ..Record::default()
        }
    }

    fn class(record: &Record<'_>) -> Class {
        judge(record, |path| path == b"/health").class
    }

    #[test]
    fn each_line_gets_the_class_of_the_table() {
        let rows = [
            (record(200, Some(200), "forward"), Class::Served),
            (record(101, Some(101), "forward"), Class::Served),
            (record(404, Some(404), "waf,forward"), Class::Served),
            (record(500, Some(500), "forward"), Class::AppError),
            (record(502, Some(502), "forward"), Class::AppError),
            (record(503, Some(503), "forward"), Class::DrainSignal),
            (record(502, None, "forward"), Class::Nowhere),
            (record(503, None, "forward"), Class::Nowhere),
            (record(504, None, "authenticate,forward"), Class::Nowhere),
            (record(502, Some(200), "forward"), Class::CutShort),
            (record(504, Some(502), "forward"), Class::CutShort),
            (record(503, None, "fixed-response"), Class::Served),
            (record(503, None, "waf,fixed-response"), Class::Served),
            (record(301, None, "redirect"), Class::Served),
            (record(503, None, "-"), Class::Served),
            (record(403, None, "waf"), Class::Served),
            (record(400, None, "-"), Class::Served),
            (record(561, None, "authenticate"), Class::Served),
            (record(500, None, "waf-failed"), Class::Served),
            (record(0, None, "-"), Class::Served),
            (record(460, None, "forward"), Class::ClientGone),
            (record(460, Some(200), "forward"), Class::ClientGone),
            (record(408, None, "-"), Class::ClientGone),
            (record(408, None, "fixed-response"), Class::Served),
            (Record { actions: None, ..record(503, None, "") }, Class::Nowhere),
            (Record { status: None, ..record(0, None, "forward") }, Class::Nowhere),
            (
                Record { request: b"GET http://shop.example:80/ HTTP/1.1", ..record(503, Some(503), "forward") },
                Class::AppError,
            ),
        ];
        for (record, wanted) in rows {
            assert_eq!(class(&record), wanted, "{record:?}");
        }
        assert!(judge(&record(503, None, "-"), |_| false).unforwarded);
        assert!(!judge(&record(503, None, "fixed-response"), |_| false).unforwarded);
    }

    #[test]
    fn each_loss_gets_its_cause() {
        let lost = |status| record(status, None, "forward");
        let (some, none) = (Some(1000), None);
        let after = |seconds: i64| Record { created: Some(0), time: seconds * 1_000_000, ..lost(504) };
        let rows = [
            (Record { target: None, ..lost(503) }, Cause::NoTarget),
            (Record { target: None, ..lost(502) }, Cause::NoTarget),
            (lost(502), Cause::NeverConnected),
            (Record { took: [some, some, none], ..lost(502) }, Cause::NoCompleteResponse),
            (Record { took: [some, none, none], ..lost(502) }, Cause::NoCompleteResponse),
            (Record { took: [some, some, none], ..lost(504) }, Cause::AnswerTimeout),
            (after(10), Cause::ConnectTimeout),
            (after(60), Cause::AnswerTimeout),
            (after(5), Cause::Timeout),
            (lost(504), Cause::Timeout),
            (Record { target: None, error_reason: b"LambdaUnhandled", ..lost(502) }, Cause::Lambda),
            (record(502, Some(200), "forward"), Cause::AnswerLost),
            (Record { status: None, ..lost(0) }, Cause::NoStatus),
        ];
        for (record, wanted) in rows {
            assert_eq!(judge(&record, |_| false).cause, Some(wanted), "{record:?}");
        }
        assert_eq!(judge(&record(503, Some(503), "forward"), |_| false).cause, None);
    }

    #[test]
    fn the_words_are_those_that_are_written() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::json!(cause), cause.word());
        }
        assert!(Cause::ALL.iter().enumerate().all(|(at, cause)| *cause as usize == at));
    }
}
