use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::channel::ReaderItem;
use super::super::event_memory::{DroppedNotifications, NotificationLoss};
use super::*;

const MIB: usize = 1 << 20;

/// Opens the streams of a session with a client that accepts log messages.
fn session(memory: &EventMemory) -> SessionStreams {
    let streams = SessionStreams::new(memory.clone());
    let opened = json!({"protocolVersion": "2025-11-25", "capabilities": {"logging": {}}});
    assert!(streams.set_revision(&RawJson::from(opened)));
    streams
}

fn notification(n_bytes: usize) -> OutgoingMessage {
    let params = json!({"level": "info", "data": "x".repeat(n_bytes)});
    OutgoingMessage::new(Message::notification("notifications/message", Some(RawJson::from(params))))
}

fn request(id: i64) -> OutgoingMessage {
    OutgoingMessage::new(Message::request(Id::Number(id), "elicitation/create", None))
}

/// Ends a request with a result of this size.
fn finish(streams: &SessionStreams, id: &Id, n_bytes: usize) {
    streams.finish(id, Some(Ok(RawJson::from(json!({"text": "x".repeat(n_bytes)})))));
}

/// Begins a request that has a stream.
fn begin(streams: &SessionStreams, id: &Id) -> Reader {
    assert!(streams.begin(id));
    streams.start_stream(id).unwrap()
}

/// Reads messages until there are none, with the id of the last event.
async fn read(reader: &mut Reader) -> (Vec<Value>, Option<(u64, u64)>) {
    let (mut messages, mut last) = (Vec::new(), None);
    while let ReaderItem::Event(event) = reader.next(Duration::from_secs(1)).await {
        let event = String::from_utf8(event.to_vec()).unwrap();
        let field = |name| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        messages.push(serde_json::from_str(field("data: ")).unwrap());
        last = super::super::channel::parse_event_id(field("id: "));
    }
    (messages, last)
}

/// Returns the number of messages that the client was told were dropped.
fn n_reported(messages: &[Value]) -> u64 {
    let warnings = messages.iter().filter(|message| message["params"]["logger"] == "pegboard");
    let numbers = warnings.map(|warning| {
        assert_eq!(warning["params"]["level"], "warning");
        let text = warning["params"]["data"].as_str().unwrap();
        text.split_once(' ').unwrap().0.parse::<u64>().unwrap()
    });
    numbers.sum()
}

#[tokio::test(start_paused = true)]
async fn a_message_from_another_thread_after_the_last_poll_takes_the_response_to_the_stream() {
    let streams = session(&EventMemory::default());
    let id = Id::Number(7);
    assert!(streams.begin(&id));
    let context = Context::from_waker(Waker::noop());
    assert!(matches!(streams.poll_request(&id, &context), RequestPoll::Waiting));
    streams
        .route(&OutgoingMessage::new(Message::notification("late", None)).related_to(Some(id.clone())))
        .unwrap();
    let end = streams.finish_waiting(&id, Some(Ok(RawJson::empty_object())));
    let RequestEnd::Stream(mut reader) = end else { panic!("there is a stream") };
    let (messages, _) = read(&mut reader).await;
    assert_eq!(messages[0]["method"], "late");
    assert_eq!(messages[1]["result"], json!({}));
}

/// The reader falls behind, disconnects, or was there all the time; the client accepts log messages or not.
#[tokio::test(start_paused = true)]
async fn a_flood_loses_notifications_but_neither_requests_nor_the_response() {
    const N_NOTIFICATIONS: u64 = 20_000;
    for (resumes, has_logging) in [(false, true), (true, true), (false, false), (true, false)] {
        let dropped = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&dropped);
        let memory = EventMemory::new(EventMemory::DEFAULT_BYTES, move |event: DroppedNotifications| {
            assert_eq!(event.reason, NotificationLoss::SlowReader);
            *counted.lock() += event.n_notifications;
        });
        let streams = session(&memory);
        if !has_logging {
            streams.set_log_level(LogLevel::Error);
        }
        let id = Id::Number(1);
        let mut reader = begin(&streams, &id);
        for number in 0..N_NOTIFICATIONS {
            if number == 100 {
                streams.route(&request(5).related_to(Some(id.clone()))).unwrap();
            }
            streams.route(&notification(1_000).related_to(Some(id.clone()))).unwrap();
        }
        finish(&streams, &id, 10);
        if resumes {
            drop(reader);
            reader = streams.reader_after(Some((1, 0))).ok().unwrap();
        }
        let (messages, _) = read(&mut reader).await;
        assert_eq!(messages.last().unwrap()["result"]["text"], "x".repeat(10));
        assert!(messages.iter().any(|message| message["method"] == "elicitation/create"));
        let n_warnings = messages.iter().filter(|message| message["params"]["logger"] == "pegboard").count();
        let n_received = (messages.len() - n_warnings - 2) as u64;
        assert_eq!(n_received + *dropped.lock(), N_NOTIFICATIONS);
        assert_eq!(n_reported(&messages), if has_logging { *dropped.lock() } else { 0 });
        assert!(memory.n_bytes() <= 5 * MIB, "{}", memory.n_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_logging_is_sent_no_log_message() {
    let streams = SessionStreams::new(EventMemory::default());
    assert!(
        streams.set_revision(&RawJson::from(json!({"protocolVersion": "2025-11-25", "capabilities": {}})))
    );
    for _ in 0..1_000 {
        streams.route(&notification(10_000)).unwrap();
    }
    let (messages, _) = read(&mut streams.reader_after(None).ok().unwrap()).await;
    assert!(!messages.is_empty() && n_reported(&messages) == 0);
}

#[test]
fn idle_sessions_that_nobody_reads_stay_small() {
    let memory = EventMemory::new(EventMemory::DEFAULT_BYTES, |dropped| {
        assert_eq!(dropped.reason, NotificationLoss::NoReader);
    });
    let sessions: Vec<_> = (0..20).map(|_| session(&memory)).collect();
    for streams in &sessions {
        for _ in 0..1_000 {
            streams.route(&notification(10_000)).unwrap();
        }
    }
    assert!(memory.n_bytes() <= sessions.len() * MIB / 4, "{}", memory.n_bytes());
    drop(sessions);
    assert_eq!(memory.n_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn responses_that_were_read_are_kept_within_the_limit() {
    let memory = EventMemory::new(4 * MIB, |_| {});
    let streams = session(&memory);
    for number in 0..30 {
        let id = Id::Number(number);
        let mut reader = begin(&streams, &id);
        finish(&streams, &id, MIB / 2);
        assert_eq!(read(&mut reader).await.0.len(), 1);
        assert!(memory.n_bytes() <= 4 * MIB, "{}", memory.n_bytes());
    }
    // The newest can be read again, and of the oldest it is known what became of it.
    let (messages, last) = read(&mut streams.reader_after(Some((30, 0))).ok().unwrap()).await;
    assert_eq!(messages[0]["result"]["text"].as_str().unwrap().len(), MIB / 2);
    assert_eq!(last, Some((30, 1)));
    let (messages, _) = read(&mut streams.reader_after(Some((1, 0))).ok().unwrap()).await;
    assert_eq!((messages.len(), &messages[0]["id"]), (1, &json!(0)));
    insta::assert_snapshot!(
        messages[0]["error"],
        @r#"{"code":-32000,"message":"The response was dropped to free memory. The request was processed"}"#
    );
    drop(streams);
    assert_eq!(memory.n_bytes(), 0);
}

#[test]
fn a_stream_that_cannot_be_resumed_has_a_reason() {
    let memory = EventMemory::new(MIB, |_| {});
    let streams = session(&memory);
    let long = Id::Text("i".repeat(1_000).into());
    drop(begin(&streams, &long));
    finish(&streams, &long, MIB);
    assert!(memory.n_bytes() < MIB);
    for number in 0..40 {
        let id = Id::Number(number);
        drop(begin(&streams, &id));
        finish(&streams, &id, 1);
    }
    let reason = |number, n_seen| streams.reader_after(Some((number, n_seen))).err();
    // The first stream was dropped because there are too many.
    assert_eq!(reason(1, 0), Some(ResumeError::Dropped));
    assert_eq!(reason(41, 0), None);
    assert_eq!(reason(41, 1), None);
    assert_eq!(reason(41, 2), Some(ResumeError::Dropped));
    assert_eq!(reason(42, 0), Some(ResumeError::Unknown));
}

#[test]
fn a_dropped_response_of_a_request_with_a_long_id_cannot_be_resumed() {
    let memory = EventMemory::new(MIB, |_| {});
    let streams = session(&memory);
    let long = Id::Text("i".repeat(1_000).into());
    drop(begin(&streams, &long));
    finish(&streams, &long, MIB);
    assert_eq!(memory.n_bytes(), 0);
    assert_eq!(streams.reader_after(Some((1, 0))).err(), Some(ResumeError::Dropped));
    assert!(streams.reader_after(Some((1, 1))).is_ok());
}

/// Each step makes the memory too small once more; what is left afterwards shows what was dropped.
#[tokio::test(start_paused = true)]
async fn events_are_dropped_in_the_order_of_their_use() {
    let memory = EventMemory::new(7 * MIB, |_| {});
    let streams = session(&memory);
    // A stream that was read, one without a reader, and one with a reader that falls behind.
    let [read_id, left_id, slow_id] = [1, 2, 3].map(Id::Number);
    let mut read_reader = begin(&streams, &read_id);
    streams.route(&notification(MIB).related_to(Some(read_id.clone()))).unwrap();
    finish(&streams, &read_id, MIB);
    assert_eq!(read(&mut read_reader).await.0.len(), 2);
    drop(read_reader);
    drop(begin(&streams, &left_id));
    streams.route(&notification(MIB).related_to(Some(left_id.clone()))).unwrap();
    finish(&streams, &left_id, MIB);
    let slow_reader = begin(&streams, &slow_id);
    streams.route(&notification(MIB).related_to(Some(slow_id.clone()))).unwrap();
    finish(&streams, &slow_id, MIB);
    assert_eq!(memory.n_bytes() / MIB, 6);

    let channels: Vec<_> =
        streams.table().channels.iter().flat_map(|channels| &channels.ended).cloned().collect();
    let sizes = || channels.iter().map(|channel| channel.n_bytes() / MIB).collect::<Vec<_>>();
    assert_eq!(sizes(), [2, 2, 2]);
    // The readers of these requests are connected, so that their responses stay.
    let mut readers = vec![slow_reader];
    let mut left = Vec::new();
    for number in 10..17 {
        let id = Id::Number(number);
        readers.push(begin(&streams, &id));
        finish(&streams, &id, MIB);
        left.push(sizes());
    }
    let expected = [[1, 2, 2], [0, 2, 2], [0, 1, 2], [0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]];
    assert_eq!(left, expected, "read, without a reader, unread, and last the responses without a reader");
    // Responses exceed the limit rather than be lost, but nothing else may.
    assert_eq!(memory.n_bytes() / MIB, 8);
    let refused = streams.route(&request(99)).unwrap_err();
    assert_eq!(refused.to_string(), "the client has too many unread messages to receive a request");
    let before = memory.n_bytes();
    for _ in 0..1_000 {
        streams.route(&notification(10_000)).unwrap();
        assert!(memory.n_bytes() <= before + 7 * MIB / 8 + 20_000, "{}", memory.n_bytes());
    }
}

#[test]
fn a_principal_cannot_use_the_memory_of_others() {
    let memory = EventMemory::new(16 * MIB, |_| {});
    let [one, other] = [(); 2].map(|()| memory.part(4 * MIB));
    let modest = session(&other);
    let id = Id::Number(1);
    drop(begin(&modest, &id));
    finish(&modest, &id, MIB);
    let greedy: Vec<_> = (0..20).map(|_| session(&one)).collect();
    for streams in &greedy {
        drop(begin(streams, &id));
        finish(streams, &id, MIB);
        assert!(one.n_bytes() <= 4 * MIB && memory.n_bytes() <= 5 * MIB + 1_000, "{memory:?}");
    }
    assert_eq!(other.n_bytes() / MIB, 1);
    drop((greedy, modest));
    assert_eq!([&one, &other, &memory].map(EventMemory::n_bytes), [0; 3]);
}

/// Ends requests with responses of this size, which their connected clients do not read.
fn unread_responses(streams: &SessionStreams, n_responses: i64, n_bytes: usize) -> Vec<Reader> {
    let responses = (1..=n_responses).map(|number| {
        let id = Id::Number(number);
        let reader = begin(streams, &id);
        finish(streams, &id, n_bytes);
        reader
    });
    responses.collect()
}

#[test]
fn unread_responses_of_a_principal_do_not_block_requests_to_others() {
    let memory = EventMemory::new(8 * MIB, |_| {});
    let [one, other] = [(); 2].map(|()| memory.part(4 * MIB));
    let (greedy, modest) = (session(&one), session(&other));
    let _readers = unread_responses(&greedy, 10, MIB);
    assert!(memory.n_bytes() > 10 * MIB);
    let refused = greedy.route(&request(1)).unwrap_err();
    assert_eq!(refused.to_string(), "the client has too many unread messages to receive a request");
    modest.route(&request(1)).unwrap();
    assert!(other.n_bytes() > 0);
}

#[test]
fn streams_are_searched_again_only_if_that_may_free_memory() {
    let memory = EventMemory::new(8 * MIB, |_| {});
    let [one, other] = [(); 2].map(|()| memory.part(16 * MIB));
    let (greedy, modest) = (session(&one), session(&other));
    let mut readers = unread_responses(&greedy, 10, MIB);
    let _reader = modest.reader_after(None).ok().unwrap();
    // A search would drop the notification.
    modest.route(&notification(1)).unwrap();
    let n_kept = other.n_bytes();
    assert!(n_kept > 0);
    modest.route(&notification(MIB / 2)).unwrap();
    assert!(other.n_bytes() > MIB / 2);
    modest.route(&notification(MIB / 2)).unwrap();
    assert_eq!(other.n_bytes(), 0, "the memory has grown by an eighth");
    modest.route(&notification(1)).unwrap();
    assert_eq!(other.n_bytes(), n_kept);
    readers.truncate(6);
    modest.route(&notification(1)).unwrap();
    assert!(memory.n_bytes() < 8 * MIB, "the responses without a reader are dropped: {}", memory.n_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_read_its_responses_receives_requests_again() {
    let memory = EventMemory::new(64 * MIB, |_| {});
    let own = memory.part(4 * MIB);
    let streams = session(&own);
    let mut readers = unread_responses(&streams, 5, MIB);
    streams.route(&request(1)).unwrap_err();
    // What has been read since is too little.
    let small = Id::Number(100);
    let mut small_reader = begin(&streams, &small);
    finish(&streams, &small, 1_000);
    streams.route(&request(1)).unwrap_err();
    assert_eq!(read(&mut small_reader).await.0.len(), 1);
    streams.route(&request(1)).unwrap_err();
    for reader in &mut readers[..2] {
        assert_eq!(read(reader).await.0.len(), 1);
    }
    streams.route(&request(1)).unwrap();
    assert!(own.n_bytes() <= 4 * MIB, "{}", own.n_bytes());
}
