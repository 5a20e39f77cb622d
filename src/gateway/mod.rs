//! The front of a server: a reverse proxy that holds a request instead of failing it.
//!
//! It may know `fleet`, `config`, `event` and `diag`, and nothing of deploys. What is decided (hosts, fields, the hold, answers,
//! what is counted) is pure and takes `now` as an argument; the shell around it only fetches, waits and obeys. One thread has its
//! own connections on both sides; threads share the configuration, the queues of those who wait, and counters.
//!
//! A request on its way: `serve` reads its head, `exchange` says who it is for and where it waits, `upstream` finds a connection,
//! `relay` moves both directions at once between a `front` and a `back`.

mod answer;
mod back;
mod closing;
mod cluster;
mod deadline;
mod ends;
mod exchange;
mod external;
mod fields;
mod front;
mod gate;
mod h1;
mod h2_back;
mod h2_front;
mod here;
mod hold;
mod line;
mod listen;
mod metrics;
mod nodes;
mod own;
mod pipe;
mod relay;
mod reload;
mod run;
mod scrape;
mod serve;
mod serve_h2;
mod site;
mod sleep;
mod spawn;
mod standing;
mod tls;
mod tunnel;
mod upstream;
mod worker;

pub use reload::Files;
pub use run::{Start, check, run};
pub use sleep::{
    Ask, Entry, FORMAT as ASK_FORMAT, Gate, HostSays, Report, Says, ServerLock, Verdict, Waking, What, entries,
};
