//! The service without a port: it shows that it works by a file that it touches.

use super::App;
use std::sync::Arc;
use std::time::Duration;

/// Between two beats, in fleet time.
const BEAT: Duration = Duration::from_secs(1);

/// Begins to touch the heartbeat file, where there is one.
pub(super) fn begin(app: &Arc<App>) {
    let Some(path) = app.spec.heartbeat.clone() else { return };
    let app = Arc::clone(app);
    tokio::spawn(async move {
        loop {
            if let Err(error) = tokio::fs::write(&path, &app.spec.release).await {
                super::log(&format!("{}: {error}", path.display()));
            }
            app.sleep(BEAT).await;
        }
    });
}
