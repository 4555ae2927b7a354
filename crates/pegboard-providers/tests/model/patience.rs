//! Several models as one, on a clock that tests turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use insta::assert_snapshot;
use pegboard_core::model::{
    Listener, Model, ModelError, ModelErrorKind, ModelFacts, ModelReply, ModelRequest, Piece,
};
use pegboard_providers::model::{Fallback, Patience};
use tokio::time::{self, Instant};

use crate::stage::{ask, told};

const SECOND: Duration = Duration::from_secs(1);

/// What a model does when it is asked.
#[derive(Clone)]
enum Play {
    Reply(&'static str),
    Fail(ModelErrorKind),
    /// Says something, and then fails.
    Falter(ModelErrorKind),
    Hang,
}

/// When which model was asked, in seconds since the beginning.
#[derive(Clone)]
struct Diary(Arc<Mutex<Vec<(String, f64)>>>, Instant);

impl Diary {
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

struct Actor {
    facts: ModelFacts,
    plays: Mutex<VecDeque<Play>>,
    diary: Diary,
}

impl Model for Actor {
    fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    fn answer<'a>(
        &'a self,
        _request: &'a ModelRequest,
        listener: Listener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        async move {
            let name = self.facts.name.clone();
            let time = self.diary.1.elapsed().as_secs_f64();
            self.diary.0.lock().unwrap().push((name.model().to_owned(), time));
            let play = {
                let mut plays = self.plays.lock().unwrap();
                if plays.len() > 1 { plays.pop_front().unwrap() } else { plays[0].clone() }
            };
            match play {
                Play::Reply(text) => {
                    listener(Piece::Text(text));
                    Ok(ModelReply { text: text.to_owned(), ..ModelReply::new(name) })
                }
                Play::Fail(kind) => Err(ModelError::new(name, kind, "as the script says")),
                Play::Falter(kind) => {
                    listener(Piece::Text("Well, I th"));
                    Err(ModelError::new(name, kind, "as the script says"))
                }
                Play::Hang => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// Models `a`, `b` … that do these things, the last of them for ever.
fn fallback(diary: &Diary, plays: &[&[Play]], patience: Patience) -> Fallback {
    let actor = |(at, plays): (usize, &&[Play])| -> Arc<dyn Model> {
        let name = format!("p/{}", char::from(b'a' + u8::try_from(at).unwrap()));
        Arc::new(Actor {
            facts: ModelFacts::new(name.parse().unwrap()),
            plays: Mutex::new(plays.iter().cloned().collect()),
            diary: diary.clone(),
        })
    };
    let mut actors = plays.iter().enumerate().map(actor);
    let first = actors.next().unwrap();
    Fallback::new(first, actors.collect(), patience)
}

const LIMITED: ModelErrorKind = ModelErrorKind::RateLimited { retry_after: None };
const OVERLOADED: ModelErrorKind = ModelErrorKind::Overloaded { retry_after: None };

fn limited_for(wait: Duration) -> Play {
    Play::Fail(ModelErrorKind::RateLimited { retry_after: Some(wait) })
}

#[tokio::test(start_paused = true)]
async fn the_first_that_replies_is_the_one() {
    let diary = Diary::new();
    let plays: [&[Play]; 3] =
        [&[Play::Fail(ModelErrorKind::Unauthorized)], &[Play::Reply("3")], &[Play::Reply("4")]];
    let model = fallback(&diary, &plays, Patience::default());
    let (reply, ..) = ask(&model, &ModelRequest::default()).await;
    assert_eq!(reply.unwrap().model.to_string(), "p/b");
    assert_eq!((diary.names().concat().as_str(), diary.times()), ("ab", vec![0.0, 0.0]));
    assert_eq!(model.facts().name.to_string(), "p/a");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_after_longer_and_longer_waits() {
    let diary = Diary::new();
    let model = fallback(&diary, &[&[Play::Fail(OVERLOADED)]], Patience::default());
    let (reply, ..) = ask(&model, &ModelRequest::default()).await;
    assert_eq!(told(&reply), "Overloaded { retry_after: None }: as the script says");
    let times = diary.times();
    let waits: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 5);
    for (wait, most) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0]) {
        assert!((most / 2.0 - 0.01..=most + 0.01).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_longer_than_the_longest() {
    let diary = Diary::new();
    let patience = Patience { max_retries: 9, max_wait: 3 * SECOND, ..Patience::default() };
    let _ = ask(&fallback(&diary, &[&[Play::Fail(LIMITED)]], patience), &ModelRequest::default()).await;
    let times = diary.times();
    assert_eq!(times.len(), 10);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 3.01), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_how_long_is_left_alone_for_so_long() {
    let diary = Diary::new();
    let model = fallback(&diary, &[&[limited_for(20 * SECOND), Play::Reply("3")]], Patience::default());
    assert!(ask(&model, &ModelRequest::default()).await.0.is_ok());
    let wait = diary.times()[1];
    assert!((20.0..=22.01).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_wants_too_long_is_not_waited_for() {
    let diary = Diary::new();
    let hour = limited_for(3_600 * SECOND);
    let model = fallback(
        &diary,
        &[std::slice::from_ref(&hour), &[Play::Fail(LIMITED), Play::Reply("3")]],
        Patience::default(),
    );
    assert!(ask(&model, &ModelRequest::default()).await.0.is_ok());
    assert_eq!(diary.names().concat(), "abb");

    let diary = Diary::new();
    let error = ask(&fallback(&diary, &[&[hour]], Patience::default()), &ModelRequest::default()).await.0;
    assert_snapshot!(error.unwrap_err(), @"model 'p/a' has been asked too often: as the script says. Try again in 1h, or name a second model");
    assert_eq!(diary.times(), [0.0]);
}

#[tokio::test(start_paused = true)]
async fn while_one_is_waited_for_the_next_is_asked_and_the_first_has_precedence() {
    let diary = Diary::new();
    let plays: [&[Play]; 2] = [&[limited_for(SECOND), Play::Reply("3")], &[limited_for(SECOND)]];
    let (reply, ..) = ask(&fallback(&diary, &plays, Patience::default()), &ModelRequest::default()).await;
    assert!(reply.is_ok());
    assert_eq!(diary.names()[..2].concat(), "ab");
    assert_eq!(diary.times()[..2], [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_is_not_tried_again() {
    for kind in [ModelErrorKind::ContextTooLong, ModelErrorKind::Unauthorized, ModelErrorKind::Refused] {
        let diary = Diary::new();
        let _ = ask(&fallback(&diary, &[&[Play::Fail(kind)]], Patience::default()), &ModelRequest::default())
            .await;
        assert_eq!(diary.times(), [0.0], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hangs_is_given_ten_minutes_and_one_more_chance() {
    let diary = Diary::new();
    let plays: [&[Play]; 2] = [&[Play::Hang], &[Play::Fail(ModelErrorKind::Refused)]];
    let (reply, ..) = ask(&fallback(&diary, &plays, Patience::default()), &ModelRequest::default()).await;
    assert_eq!(told(&reply), "TimedOut { limit: 600s }: no whole reply within 600s (also: p/b refused)");
    assert_eq!(diary.names().concat(), "aba");
    assert!((1_200.0..1_203.0).contains(&diary.1.elapsed().as_secs_f64()));
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_is_too_long_is_told_before_anything_else() {
    let diary = Diary::new();
    let plays: [&[Play]; 2] =
        [&[Play::Fail(ModelErrorKind::ContextTooLong)], &[Play::Fail(ModelErrorKind::Unauthorized)]];
    let (reply, ..) = ask(&fallback(&diary, &plays, Patience::default()), &ModelRequest::default()).await;
    assert_snapshot!(reply.unwrap_err(), @"model 'p/a' cannot read so much: as the script says (also: p/b unauthorized). Give it less to read, or a model with a larger context window");
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_of_a_reply_that_failed_does_not_count() {
    let diary = Diary::new();
    let plays: [&[Play]; 1] =
        [&[Play::Falter(ModelErrorKind::Unreachable), Play::Fail(LIMITED), Play::Reply("three")]];
    let heard = Mutex::new(Vec::new());
    let model = fallback(&diary, &plays, Patience::default());
    model
        .answer(&ModelRequest::default(), &|piece| heard.lock().unwrap().push(format!("{piece:?}")))
        .await
        .unwrap();
    assert_eq!(heard.into_inner().unwrap(), [r#"Text("Well, I th")"#, "Again", r#"Text("three")"#]);
}

#[tokio::test(start_paused = true)]
async fn dropping_ends_the_waiting() {
    let diary = Diary::new();
    let model = fallback(&diary, &[&[Play::Fail(OVERLOADED)]], Patience::default());
    let request = ModelRequest::default();
    assert!(time::timeout(Duration::from_millis(100), ask(&model, &request)).await.is_err());
    time::sleep(60 * SECOND).await;
    assert_eq!(diary.times(), [0.0]);
}
