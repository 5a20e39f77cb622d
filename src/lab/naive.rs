//! The deploy that scripts do: restart each server's containers in turn, wait until they answer, go on. It shows what the
//! lab can see.

use super::Lab;
use anyhow::Context as _;

/// Plays it on a lab: every server gets another release, none is drained.
///
/// # Errors
/// When a service does not come back.
pub async fn play(lab: &Lab) -> anyhow::Result<()> {
    for spec in &lab.fleet.servers {
        let Some(server) = lab.servers.get(&spec.name) else { continue };
        let release = server.another_release()?;
        let id = release.manifest.id.clone();
        server.learn(release);
        server.restart_with(&id).await.with_context(|| format!("{} does not come back", spec.name))?;
    }
    Ok(())
}
