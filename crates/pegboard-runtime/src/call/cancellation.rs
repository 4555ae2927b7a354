//! Cancellation of a call, and with it of the calls that it makes.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

/// Cancellation of one call. Most calls make no others, so that a flag is enough; tokens connect nested calls.
#[derive(Debug, Default)]
pub(crate) struct CallCancellation {
    is_cancelled: AtomicBool,
    /// Wakes the call, which alone waits.
    waker: AtomicWaker,
    /// Cancels the calls that this one makes, once there was one.
    nested: OnceLock<CancellationToken>,
    /// Cancelled with the call that made this one.
    parent: Option<CancellationToken>,
}

impl CallCancellation {
    /// Creates the cancellation of a call that this one makes.
    pub(super) fn nested(&self) -> Self {
        let token = self.nested.get_or_init(|| {
            self.parent.as_ref().map_or_else(CancellationToken::new, CancellationToken::child_token)
        });
        // Either this finds the flag, or `cancel` finds the token.
        fence(Ordering::SeqCst);
        if self.is_cancelled.load(Ordering::Relaxed) {
            token.cancel();
        }
        Self { parent: Some(token.clone()), ..Self::default() }
    }

    /// Cancels the call and those that it has made.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.waker.wake();
        fence(Ordering::SeqCst);
        if let Some(nested) = self.nested.get() {
            nested.cancel();
        }
    }

    /// Waits until the call is cancelled. Only one task may wait.
    pub(super) async fn cancelled(&self) {
        let own = poll_fn(|context| self.poll_cancelled(context));
        match &self.parent {
            None => own.await,
            Some(parent) => {
                tokio::select! {
                    biased;
                    () = own => {}
                    // Boxed, so that the futures of all other calls stay small.
                    () = Box::pin(parent.cancelled()) => {}
                }
            }
        }
    }

    fn poll_cancelled(&self, context: &Context<'_>) -> Poll<()> {
        let is_cancelled = || self.is_cancelled.load(Ordering::Acquire);
        if is_cancelled() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        // It may have been cancelled before the waker was registered.
        if is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_call_is_cancelled_with_its_ancestors_and_not_with_its_siblings() {
        let is_cancelled = |call: &CallCancellation| call.cancelled().now_or_never().is_some();
        let root = CallCancellation::default();
        let (one, other) = (root.nested(), root.nested());
        let grandchild = one.nested();
        let state = || [&root, &one, &other, &grandchild].map(is_cancelled);
        assert_eq!(state(), [false; 4]);
        one.cancel();
        assert_eq!(state(), [false, true, false, true]);
        root.cancel();
        assert_eq!(state(), [true; 4]);
        // Made too late.
        assert!(is_cancelled(&root.nested()) && is_cancelled(&one.nested()));
    }

    #[tokio::test]
    async fn a_waiting_call_is_woken() {
        for is_nested in [false, true] {
            let root = CallCancellation::default();
            let call = if is_nested { root.nested() } else { CallCancellation::default() };
            let cancel = async {
                tokio::task::yield_now().await;
                if is_nested { root.cancel() } else { call.cancel() }
            };
            tokio::join!(call.cancelled(), cancel);
        }
    }
}
