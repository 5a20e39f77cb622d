//! Tasks stay on the thread that began them: nothing of a request is shared between threads.

use std::future::Future;

/// Runs hyper's tasks on the thread that asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local;

impl<F> hyper::rt::Executor<F> for Local
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
