//! The server lock as the gateway needs it: taken for as long as containers are started or stopped, and looked at.
//!
//! How it is taken is somebody else's to know; here is only that all hosts of one gateway share what one of them holds.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Something that is held until it is dropped.
pub type Guard = Box<dyn Send + Sync>;

/// The lock that deploys, bootstrap and watchdog take too.
pub trait ServerLock: Debug + Send + Sync {
    /// Takes it without waiting; `None` where somebody else has it.
    ///
    /// # Errors
    /// When it cannot be made, opened or written down.
    fn try_take(&self, lock: &Path, dir: &Path) -> io::Result<Option<Guard>>;

    /// Whether somebody has it.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    fn is_held(&self, lock: &Path, dir: &Path) -> io::Result<bool>;
}

/// The lock of one gateway.
#[derive(Debug)]
pub(super) struct Shared {
    lock: Arc<dyn ServerLock>,
    path: PathBuf,
    dir: PathBuf,
    ours: Mutex<Weak<Held>>,
}

/// It is ours as long as one of these lives.
pub(super) struct Held(#[expect(dead_code, reason = "it is only held")] Guard);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Shared {
    pub(super) fn new(lock: Arc<dyn ServerLock>, path: &str, dir: &str) -> Self {
        Self { lock, path: path.into(), dir: dir.into(), ours: Mutex::new(Weak::new()) }
    }

    /// Ours, or `None` where somebody else works here.
    pub(super) fn take(&self) -> io::Result<Option<Arc<Held>>> {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = ours.upgrade() {
            return Ok(Some(held));
        }
        std::fs::create_dir_all(&self.dir)?;
        let held = self.lock.try_take(&self.path, &self.dir)?.map(|guard| Arc::new(Held(guard)));
        if let Some(held) = &held {
            *ours = Arc::downgrade(held);
        }
        Ok(held)
    }

    /// Whether somebody else works here; what cannot be read may be somebody.
    pub(super) fn is_others(&self) -> bool {
        let ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        ours.strong_count() == 0 && self.lock.is_held(&self.path, &self.dir).unwrap_or(true)
    }
}
