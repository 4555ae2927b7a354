//! A program that this process watches itself.

use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Child;
use tokio::sync::SetOnce;

use super::command::SpawnError;
use super::exit::ProcessExit;
use super::plan::SpawnPlan;
use super::tree::ProcessTree;
use super::waiter::{SpawnedProcess, WatchedProcess};

/// A child process with its descendants.
#[derive(Debug)]
pub(super) struct DirectProcess {
    child: Child,
    tree: ProcessTree,
    has_fully_exited: bool,
}

/// Starts a program as a child of this process, in its own process group.
pub(super) fn start(plan: &SpawnPlan<'_>) -> Result<SpawnedProcess, SpawnError> {
    let mut command = plan.command(&plan.program);
    command.args(&plan.spec.program.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    command.process_group(0);
    let mut child =
        command.spawn().map_err(|error| SpawnError::refused(&plan.spec.program.command, error))?;
    let pid = child.id().expect("the child has not been awaited");
    Ok(SpawnedProcess {
        stdin: child.stdin.take().expect("stdin is piped"),
        stdout: child.stdout.take().expect("stdout is piped"),
        stderr: child.stderr.take().expect("stderr is piped"),
        pid: Arc::new(SetOnce::new_with(Some(pid))),
        watched: WatchedProcess::Direct(DirectProcess {
            tree: ProcessTree::of_child(pid, &child),
            child,
            has_fully_exited: false,
        }),
    })
}

impl DirectProcess {
    /// Waits for the exit of the program.
    pub(super) async fn exit(&mut self) -> ProcessExit {
        self.child.wait().await.map_or(ProcessExit::UNKNOWN, ProcessExit::from)
    }

    pub(super) async fn terminate(&mut self) {
        self.with_tree(ProcessTree::terminate).await;
    }

    pub(super) async fn kill(&mut self) {
        self.with_tree(ProcessTree::kill).await;
    }

    /// Returns the ids of the running processes, as far as they can be found.
    pub(super) async fn still_running(&mut self) -> Vec<u32> {
        let running = self.with_tree(ProcessTree::refresh).await;
        self.has_fully_exited = running.as_ref().is_some_and(Vec::is_empty);
        running.unwrap_or_default()
    }

    /// Runs an operation that scans the process table, which may take milliseconds, on a blocking thread.
    async fn with_tree<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut ProcessTree) -> T + Send + 'static,
    ) -> Option<T> {
        let mut tree = self.tree.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = act(&mut tree);
            (tree, result)
        });
        let (tree, result) = task.await.ok()?;
        self.tree = tree;
        Some(result)
    }
}

impl Drop for DirectProcess {
    /// Kills everything: without a runtime there is no stepwise shutdown.
    fn drop(&mut self) {
        if !self.has_fully_exited {
            self.tree.kill();
        }
    }
}
