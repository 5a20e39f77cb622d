//! What a measurement says: of each second while it runs, and of the whole at its end. Values only; nothing is computed here.

use super::Requests;
use serde::Serialize;
use std::net::SocketAddr;

/// What became of the requests that ended within one second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Second {
    /// The counts.
    pub requests: Requests,
    /// How many of them were lost.
    pub lost: u64,
    /// The p99 of their latency, counted from when they were due; null where none was answered.
    pub p99_seconds: Option<f64>,
    /// The p99 of how late requests were sent.
    pub late_p99_seconds: Option<f64>,
    /// How many are under way.
    pub outstanding: u64,
    /// The deploy that is marked as running, by its label; an empty text where it has none.
    pub deploy: Option<String>,
}

/// A mark that somebody set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// A deploy began.
    Begin,
    /// It ended.
    End,
}

/// The whole of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// What was asked.
    pub url: String,
    /// In which version of HTTP.
    pub http: String,
    /// How long requests were sent.
    pub seconds: f64,
    /// What became of all of them.
    pub requests: Requests,
    /// How long answers took.
    pub latency: Latency,
    /// How many requests per second.
    pub rate: Rate,
    /// How well the schedule was kept.
    pub schedule: Punctuality,
    /// The first hundred gaps; over all addresses together first, then of each address where there are several.
    pub gaps: Vec<Gap>,
    /// How many gaps there were over all addresses together.
    pub gaps_total: u64,
    /// The first hundred losses.
    pub losses: Vec<Lost>,
    /// The counts by marked deploys; empty where nobody marked one.
    pub windows: Vec<Window>,
    /// What had to be warned of.
    pub warnings: Vec<String>,
}

/// Percentiles of latency over the requests that were answered, from the moment each was due to the end of its body.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// How many they are taken over.
    pub requests: u64,
    /// The median.
    pub p50_seconds: Option<f64>,
    /// Nine of ten.
    pub p90_seconds: Option<f64>,
    /// 99 of 100.
    pub p99_seconds: Option<f64>,
    /// 999 of 1,000.
    pub p999_seconds: Option<f64>,
    /// The slowest.
    pub max_seconds: Option<f64>,
}

/// Requests per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// What was asked for.
    pub requested: f64,
    /// What was sent.
    pub achieved: f64,
}

/// How late requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Punctuality {
    /// The median.
    pub late_p50_seconds: Option<f64>,
    /// 99 of 100.
    pub late_p99_seconds: Option<f64>,
    /// The latest.
    pub late_max_seconds: Option<f64>,
    /// How many were sent more than 10 ms late.
    pub late_requests: u64,
    /// How many could not be sent at all by this machine; they count as `client_gone`.
    pub not_sent: u64,
}

/// A run of lost requests, in the order in which they were due, without one between them that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// At which address; null for all of them together.
    pub address: Option<SocketAddr>,
    /// How many requests.
    pub lost: u64,
    /// When the last request before it that was answered was sent; null where there was none.
    pub after: Option<f64>,
    /// When the first lost one was sent.
    pub first: f64,
    /// When the last lost one was sent.
    pub last: f64,
    /// When the first request after it that was answered was sent; null where there was none.
    pub before: Option<f64>,
    /// From the first lost one to the last.
    pub at_least_seconds: f64,
    /// From the answered one before to the answered one after; null where one of them is missing.
    pub at_most_seconds: Option<f64>,
}

/// A lost request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lost {
    /// When it was sent.
    pub at: f64,
    /// `nowhere` or `cut_short`.
    pub class: String,
    /// The status or the error.
    pub what: String,
    /// To which address.
    pub address: Option<SocketAddr>,
}

/// Which part of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Before the first deploy.
    Before,
    /// During one.
    During,
    /// Between two.
    Between,
    /// After the last one.
    After,
}

/// What became of the requests that were sent in one part of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Which part.
    pub part: Part,
    /// The deploy's label.
    pub label: Option<String>,
    /// From when.
    pub from: f64,
    /// To when.
    pub to: f64,
    /// The counts.
    pub requests: Requests,
    /// The p99 of the answered ones' latency.
    pub p99_seconds: Option<f64>,
}
