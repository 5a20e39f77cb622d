//! An Application Load Balancer's access logs: what its own words say became of every request.
//!
//! `line` reads one line, `judge` says what became of its request, `tally` counts, `read` brings the lines. Nothing here prints, and
//! nothing that stood in a log leaves this module but through `clean`.

mod clean;
mod judge;
mod line;
mod read;
mod tally;
#[cfg(test)]
mod tests;
pub mod time;

pub use clean::{clean, clean_path};
pub use judge::{Cause, Judged, judge};
pub use line::{Broken, Record, parse};
pub use read::{BrokenLine, FileRead, Input, Inputs, Reading, inputs, read};
pub use tally::{Counted, Loss, Rules, Side, Tally, Window};
