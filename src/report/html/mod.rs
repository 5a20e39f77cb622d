//! One run as one page: a lane for each server over the time, what became of requests under it, the plan beside what happened.
//!
//! It reads the lines of the event stream, as JSON writes them and nothing else, so a page can be made of a run that is over and of one
//! that is read back. The page needs no network, no other file and no script to be read; the script only moves what is said under the pointer.

mod page;
mod run;
mod svg;

pub use page::page;

#[cfg(test)]
mod tests;
