//! Fallback and retries, with a paused clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use insta::assert_snapshot;
use pegboard_core::model::{
    Model, ModelError, ModelErrorKind, ModelInfo, ModelReply, ModelRequest, ReplyEvent, ReplyListener,
};
use pegboard_providers::model::{FallbackModel, ModelRetryPolicy};
use tokio::time::{self, Instant};

use crate::model::harness::{ask, describe};

const SECOND: Duration = Duration::from_secs(1);

/// Scripted behaviour of a model.
#[derive(Clone)]
enum ScriptedReply {
    Reply(&'static str),
    Fail(ModelErrorKind),
    /// Streams some text, then fails.
    FailMidway(ModelErrorKind),
    Hang,
}

/// Requests with the model's name and the time in seconds.
#[derive(Clone)]
struct RequestLog(Arc<Mutex<Vec<(String, f64)>>>, Instant);

impl RequestLog {
    fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    fn times(&self) -> Vec<f64> {
        self.0.lock().unwrap().iter().map(|(_, time)| *time).collect()
    }
}

struct ScriptedModel {
    info: ModelInfo,
    replies: Mutex<VecDeque<ScriptedReply>>,
    log: RequestLog,
}

impl Model for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn answer<'a>(
        &'a self,
        _request: &'a ModelRequest,
        listener: ReplyListener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        async move {
            let name = self.info.name.clone();
            let time = self.log.1.elapsed().as_secs_f64();
            self.log.0.lock().unwrap().push((name.model().to_owned(), time));
            let reply = {
                let mut replies = self.replies.lock().unwrap();
                if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
            };
            match reply {
                ScriptedReply::Reply(text) => {
                    listener(ReplyEvent::Text(text));
                    Ok(ModelReply { text: text.to_owned(), ..ModelReply::new(name) })
                }
                ScriptedReply::Fail(kind) => Err(ModelError::new(name, kind, "as the script says")),
                ScriptedReply::FailMidway(kind) => {
                    listener(ReplyEvent::Text("Well, I th"));
                    Err(ModelError::new(name, kind, "as the script says"))
                }
                ScriptedReply::Hang => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// Creates models `a`, `b` … with these scripts; the last entry repeats.
fn fallback(log: &RequestLog, replies: &[&[ScriptedReply]], retry_policy: ModelRetryPolicy) -> FallbackModel {
    let model = |(at, replies): (usize, &&[ScriptedReply])| -> Arc<dyn Model> {
        let name = format!("p/{}", char::from(b'a' + u8::try_from(at).unwrap()));
        Arc::new(ScriptedModel {
            info: ModelInfo::new(name.parse().unwrap()),
            replies: Mutex::new(replies.iter().cloned().collect()),
            log: log.clone(),
        })
    };
    let mut models = replies.iter().enumerate().map(model);
    let first = models.next().unwrap();
    FallbackModel::new(first, models.collect(), retry_policy)
}

const LIMITED: ModelErrorKind = ModelErrorKind::RateLimited { retry_after: None };
const OVERLOADED: ModelErrorKind = ModelErrorKind::Overloaded { retry_after: None };

fn limited_for(wait: Duration) -> ScriptedReply {
    ScriptedReply::Fail(ModelErrorKind::RateLimited { retry_after: Some(wait) })
}

#[tokio::test(start_paused = true)]
async fn the_first_model_that_replies_wins() {
    let log = RequestLog::new();
    let replies: [&[ScriptedReply]; 3] = [
        &[ScriptedReply::Fail(ModelErrorKind::Unauthorized)],
        &[ScriptedReply::Reply("3")],
        &[ScriptedReply::Reply("4")],
    ];
    let model = fallback(&log, &replies, ModelRetryPolicy::default());
    let (reply, ..) = ask(&model, &ModelRequest::default()).await;
    assert_eq!(reply.unwrap().model.to_string(), "p/b");
    assert_eq!((log.names().concat().as_str(), log.times()), ("ab", vec![0.0, 0.0]));
    assert_eq!(model.info().name.to_string(), "p/a");
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried_with_exponential_backoff() {
    let log = RequestLog::new();
    let model = fallback(&log, &[&[ScriptedReply::Fail(OVERLOADED)]], ModelRetryPolicy::default());
    let (reply, ..) = ask(&model, &ModelRequest::default()).await;
    assert_eq!(describe(&reply), "Overloaded { retry_after: None }: as the script says");
    let times = log.times();
    let waits: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 5);
    for (wait, most) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0]) {
        assert!((most / 2.0 - 0.01..=most + 0.01).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn backoff_is_capped() {
    let log = RequestLog::new();
    let retry_policy =
        ModelRetryPolicy { max_retries: 9, max_backoff: 3 * SECOND, ..ModelRetryPolicy::default() };
    let _ = ask(&fallback(&log, &[&[ScriptedReply::Fail(LIMITED)]], retry_policy), &ModelRequest::default())
        .await;
    let times = log.times();
    assert_eq!(times.len(), 10);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 3.01), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected() {
    let log = RequestLog::new();
    let model = fallback(
        &log,
        &[&[limited_for(20 * SECOND), ScriptedReply::Reply("3")]],
        ModelRetryPolicy::default(),
    );
    assert!(ask(&model, &ModelRequest::default()).await.0.is_ok());
    let wait = log.times()[1];
    assert!((20.0..=22.01).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn an_excessive_retry_after_is_not_waited_for() {
    let log = RequestLog::new();
    let hour = limited_for(3_600 * SECOND);
    let model = fallback(
        &log,
        &[std::slice::from_ref(&hour), &[ScriptedReply::Fail(LIMITED), ScriptedReply::Reply("3")]],
        ModelRetryPolicy::default(),
    );
    assert!(ask(&model, &ModelRequest::default()).await.0.is_ok());
    assert_eq!(log.names().concat(), "abb");

    let log = RequestLog::new();
    let error =
        ask(&fallback(&log, &[&[hour]], ModelRetryPolicy::default()), &ModelRequest::default()).await.0;
    assert_snapshot!(error.unwrap_err(), @"model 'p/a' is rate limited: as the script says. Retry in 1h, or configure a fallback model");
    assert_eq!(log.times(), [0.0]);
}

#[tokio::test(start_paused = true)]
async fn the_next_model_is_tried_during_backoff_and_the_first_has_precedence() {
    let log = RequestLog::new();
    let replies: [&[ScriptedReply]; 2] =
        [&[limited_for(SECOND), ScriptedReply::Reply("3")], &[limited_for(SECOND)]];
    let (reply, ..) =
        ask(&fallback(&log, &replies, ModelRetryPolicy::default()), &ModelRequest::default()).await;
    assert!(reply.is_ok());
    assert_eq!(log.names()[..2].concat(), "ab");
    assert_eq!(log.times()[..2], [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    for kind in [ModelErrorKind::ContextTooLong, ModelErrorKind::Unauthorized, ModelErrorKind::Refused] {
        let log = RequestLog::new();
        let _ = ask(
            &fallback(&log, &[&[ScriptedReply::Fail(kind)]], ModelRetryPolicy::default()),
            &ModelRequest::default(),
        )
        .await;
        assert_eq!(log.times(), [0.0], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_retried_once() {
    let log = RequestLog::new();
    let replies: [&[ScriptedReply]; 2] =
        [&[ScriptedReply::Hang], &[ScriptedReply::Fail(ModelErrorKind::Refused)]];
    let (reply, ..) =
        ask(&fallback(&log, &replies, ModelRetryPolicy::default()), &ModelRequest::default()).await;
    assert_eq!(
        describe(&reply),
        "TimedOut { limit: 600s }: no complete reply within 600s (also: p/b refused)"
    );
    assert_eq!(log.names().concat(), "aba");
    assert!((1_200.0..1_203.0).contains(&log.1.elapsed().as_secs_f64()));
}

#[tokio::test(start_paused = true)]
async fn a_context_overflow_is_reported_before_other_errors() {
    let log = RequestLog::new();
    let replies: [&[ScriptedReply]; 2] = [
        &[ScriptedReply::Fail(ModelErrorKind::ContextTooLong)],
        &[ScriptedReply::Fail(ModelErrorKind::Unauthorized)],
    ];
    let (reply, ..) =
        ask(&fallback(&log, &replies, ModelRetryPolicy::default()), &ModelRequest::default()).await;
    assert_snapshot!(reply.unwrap_err(), @"model 'p/a' exceeded its context window: as the script says (also: p/b unauthorized). Shorten the conversation, or use a model with a larger context window");
}

#[tokio::test(start_paused = true)]
async fn text_of_a_failed_reply_is_discarded() {
    let log = RequestLog::new();
    let replies: [&[ScriptedReply]; 1] = [&[
        ScriptedReply::FailMidway(ModelErrorKind::Unreachable),
        ScriptedReply::Fail(LIMITED),
        ScriptedReply::Reply("three"),
    ]];
    let streamed = Mutex::new(Vec::new());
    let model = fallback(&log, &replies, ModelRetryPolicy::default());
    model
        .answer(&ModelRequest::default(), &|piece| streamed.lock().unwrap().push(format!("{piece:?}")))
        .await
        .unwrap();
    assert_eq!(streamed.into_inner().unwrap(), [r#"Text("Well, I th")"#, "Restarted", r#"Text("three")"#]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_stops_retries() {
    let log = RequestLog::new();
    let model = fallback(&log, &[&[ScriptedReply::Fail(OVERLOADED)]], ModelRetryPolicy::default());
    let request = ModelRequest::default();
    assert!(time::timeout(Duration::from_millis(100), ask(&model, &request)).await.is_err());
    time::sleep(60 * SECOND).await;
    assert_eq!(log.times(), [0.0]);
}
