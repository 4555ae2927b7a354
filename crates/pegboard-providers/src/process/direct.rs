//! A program that this process watches itself.

use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Child;
use tokio::sync::SetOnce;

use super::exit::Exit;
use super::keeper::{Kept, Started};
use super::launch::LaunchError;
use super::plan::Plan;
use super::tree::Tree;

/// A child of this process, and what is below it.
#[derive(Debug)]
pub(super) struct Direct {
    child: Child,
    tree: Tree,
    is_clear: bool,
}

/// Starts a program as a child of this process, in a process group of its own.
pub(super) fn start(plan: &Plan<'_>) -> Result<Started, LaunchError> {
    let mut command = plan.command(&plan.program);
    command.args(&plan.launch.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| LaunchError::Refused { command: plan.launch.command.clone(), error })?;
    let pid = child.id().expect("nobody has waited for it");
    Ok(Started {
        stdin: child.stdin.take().expect("it was asked for"),
        stdout: child.stdout.take().expect("it was asked for"),
        stderr: child.stderr.take().expect("it was asked for"),
        pid: Arc::new(SetOnce::new_with(Some(pid))),
        kept: Kept::Direct(Direct { tree: Tree::of_child(pid, &child), child, is_clear: false }),
    })
}

impl Direct {
    /// How the program ends, when it does.
    pub(super) async fn exit(&mut self) -> Exit {
        self.child.wait().await.map_or(Exit::UNKNOWN, Exit::from)
    }

    pub(super) async fn terminate(&mut self) {
        self.on_tree(Tree::terminate).await;
    }

    pub(super) async fn kill(&mut self) {
        self.on_tree(Tree::kill).await;
    }

    /// What still runs, as far as can be seen.
    pub(super) async fn left(&mut self) -> Vec<u32> {
        let left = self.on_tree(Tree::look).await;
        self.is_clear = left.as_ref().is_some_and(Vec::is_empty);
        left.unwrap_or_default()
    }

    /// Does something that takes a look at everything that runs, which may take milliseconds.
    async fn on_tree<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Tree) -> T + Send + 'static,
    ) -> Option<T> {
        let mut tree = self.tree.clone();
        let acted = tokio::task::spawn_blocking(move || {
            let done = act(&mut tree);
            (tree, done)
        });
        let (tree, done) = acted.await.ok()?;
        self.tree = tree;
        Some(done)
    }
}

impl Drop for Direct {
    /// There is no runtime left to end it step by step.
    fn drop(&mut self) {
        if !self.is_clear {
            self.tree.kill();
        }
    }
}
