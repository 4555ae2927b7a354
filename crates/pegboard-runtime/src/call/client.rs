//! The client of a tool: forwards to the client behind the call, pauses the clock while it is asked for input,
//! and turns progress into events.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::client::{
    AskError, Client, ClientMeta, ClientSession, InputRequests, InputResponses, NoClient, Notice,
    SamplingSupport,
};
use pegboard_core::task::{TaskMode, clamp_lifetime};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use tokio::time::{self, Instant};

use super::active::ActiveCall;
use crate::event::RuntimeEvent;

/// Maximum total time that one call may wait for input from its caller.
const MAX_INPUT_WAIT: Duration = Duration::from_hours(1);
/// Maximum length of a progress message.
const MAX_PROGRESS_BYTES: usize = 512;

/// Implemented by the call itself, so that a tool gets its client without another allocation.
impl Client for ActiveCall {
    fn notify(&self, notice: Notice) {
        if self.recorder.has_ended() {
            return;
        }
        if let Notice::Progress(progress) = &notice {
            self.clock.record_progress();
            self.caller().shared().events.emit(|| RuntimeEvent::Progress {
                call: self.recorder.info(),
                done: progress.done,
                total: progress.total,
                message: progress
                    .message
                    .as_deref()
                    .map(|message| clipped(message, MAX_PROGRESS_BYTES).into_owned()),
            });
        }
        if let Notice::Task(task) = &notice
            && self.task_mode() == TaskMode::Accepted
        {
            self.clock.extend_until(Instant::now() + clamp_lifetime(task.time_to_live));
        }
        self.client().notify(notice);
    }

    fn request_meta(&self) -> Option<&ClientMeta> {
        self.client().request_meta()
    }

    fn cancel_reason(&self) -> Option<RawJson> {
        self.client().cancel_reason()
    }

    fn task_mode(&self) -> TaskMode {
        self.client().task_mode()
    }

    fn needs_input_rounds(&self) -> bool {
        self.client().needs_input_rounds()
    }

    fn has_session(&self) -> bool {
        self.client().has_session()
    }

    fn session(&self) -> Option<Arc<dyn ClientSession>> {
        self.client().session()
    }

    fn sampling_support(&self) -> SamplingSupport {
        self.client().sampling_support()
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            if self.recorder.has_ended() {
                return Err(AskError::Gone);
            }
            // The clock is paused while waiting for input, so the wait needs a limit of its own.
            let elapsed = self.clock.reading();
            let limit = match elapsed.extended_until {
                // The caller of a task polls it and may take long to answer.
                Some(end) => end.saturating_duration_since(Instant::now()),
                None => MAX_INPUT_WAIT
                    .saturating_sub(elapsed.paused)
                    .min(self.caller().shared().settings().question_timeout.into()),
            };
            if limit.is_zero() {
                return Err(AskError::TimedOut(MAX_INPUT_WAIT));
            }
            let _pause = self.clock.pause();
            let asked_at = Instant::now();
            let answered = time::timeout(limit, self.client().ask(questions)).await;
            self.recorder.add_question_wait(asked_at.elapsed());
            answered.unwrap_or(Err(AskError::TimedOut(limit)))
        }
        .boxed()
    }
}

impl ActiveCall {
    /// Returns the client behind the call.
    fn client(&self) -> &dyn Client {
        self.inherited.client.as_deref().unwrap_or(&NoClient)
    }
}
