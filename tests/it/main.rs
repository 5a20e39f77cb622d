//! The one test binary: everything that needs no machine of its own.

mod absences;
mod access_log;
mod alb;
mod architecture;
mod asleep;
mod attacks;
mod cli;
mod compose;
mod deploys;
mod docs;
mod fuzz;
mod gateway;
mod haproxy;
mod interleavings;
mod kubernetes;
mod lab;
mod measure;
mod nodes;
mod peers;
mod plans;
mod provision;
mod simulation;
mod sleepers;
mod timing;
mod world;
