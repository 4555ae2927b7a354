//! Decoding of events that arrive in arbitrary chunks.

use std::time::Duration;

use pegboard_wire::http::sse::{EventTooLarge, SseDecoder, SseEvent, encode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const LIMIT: usize = 4096;

fn decode(pieces: &[&[u8]]) -> Vec<Result<SseEvent, EventTooLarge>> {
    decode_within(LIMIT, pieces)
}

fn decode_within(limit: usize, pieces: &[&[u8]]) -> Vec<Result<SseEvent, EventTooLarge>> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(event) = decoder.next_event() {
            events.push(event);
        }
    }
    events
}

fn check(stream: &str, expected: &[SseEvent]) {
    let expected: Vec<_> = expected.iter().cloned().map(Ok).collect();
    assert_eq!(decode(&[stream.as_bytes()]), expected, "{stream:?}");
    let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
    assert_eq!(decode(&bytes), expected, "{stream:?} byte by byte");
}

fn message(data: &'static str) -> SseEvent {
    SseEvent::message(data)
}

#[test]
fn all_line_endings_are_recognized() {
    check("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n", &["a", "b", "c", "d"].map(message));
}

#[test]
fn lines_of_data_are_joined() {
    check("data: a\ndata\ndata:b\ndata:  c\n\n", &[message("a\n\nb\n c")]);
}

#[test]
fn comments_unknown_fields_and_a_byte_order_mark_are_ignored() {
    check("\u{feff}: hello\n\n:\ndata: a\nfoo: bar\nfoo\n\n\n\n", &[message("a")]);
}

#[test]
fn an_event_may_carry_only_an_id_and_a_retry_time() {
    let expected =
        SseEvent { id: Some("7".into()), retry: Some(Duration::from_millis(500)), ..SseEvent::default() };
    check("id: 7\nretry: 500\ndata:\n\n", std::slice::from_ref(&expected));
    check("retry:500\nid:7\n\n", &[expected]);
}

#[test]
fn invalid_retry_times_and_ids_are_ignored() {
    check("retry: 5s\nretry: -1\nretry: 99999999999999999999999\nid: a\0\n\n", &[]);
}

#[test]
fn an_incomplete_event_is_not_emitted() {
    check("event: message\ndata: a\n", &[]);
}

#[test]
fn characters_may_be_split_across_chunks() {
    check("data: Grüße, 世界\n\n", &[message("Grüße, 世界")]);
}

#[test]
fn an_oversized_event_is_reported_once_and_the_next_is_decoded() {
    let long = format!("data: {}\ndata: more\n\ndata: b\n\n", "x".repeat(100));
    let many = format!("{}\n\ndata: b\n\n", "data: xxxxxxxxxx\n".repeat(10));
    let ends = format!("data: {}\n\ndata: b\n\n", "y".repeat(400));
    for stream in [long, many, ends] {
        for size in (1..20).chain([stream.len()]) {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let [first, second] = <[_; 2]>::try_from(decode_within(64, &pieces)).unwrap();
            assert_eq!(first.unwrap_err().limit, 64, "in pieces of {size}");
            assert_eq!(second, Ok(message("b")), "in pieces of {size}");
        }
    }
}

#[test]
fn an_oversized_event_that_answers_a_request_is_reported_again_when_that_is_known() {
    let padding = "x".repeat(100);
    let first = format!("data: {{\"id\":7,\"result\":\"{padding}\"}}\n\n");
    let last = format!("data: {{\"result\":\"{padding}\",\"id\":7}}\n\n");
    let lines = format!("data: {{\"result\":[\n{}data: ],\"id\":7}}\n\n", "data: 1,\n".repeat(30));
    for (stream, n_reports) in [(first, 1), (last, 2), (lines, 2)] {
        for size in [1, 5, 16] {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let found = decode_within(64, &pieces);
            assert!(found.iter().all(Result::is_err), "in pieces of {size}: {found:?}");
            assert_eq!(found.len(), n_reports, "in pieces of {size}: {stream}");
        }
    }
}

#[test]
fn an_id_with_a_line_break_cannot_forge_a_field() {
    let forged = SseEvent { id: Some("7\ndata: x".into()), event: Some("a\r\nb".into()), ..message("y") };
    assert_eq!(encode(&forged), "id: 7data: x\nevent: ab\ndata: y\n\n");
}

fn an_event() -> impl Strategy<Value = SseEvent> {
    let name = option::of("[a-zA-Z0-9 :äß]{1,8}").prop_map(|name| name.filter(|name| !name.starts_with(' ')));
    let data = "([a-z :\u{e4}\u{4e16}]|\\n|\\r|\\r\\n){0,40}";
    (name.clone(), name, data, option::of(0..100_000u64)).prop_map(|(id, event, data, retry)| SseEvent {
        id,
        event,
        data: data.into(),
        retry: retry.map(Duration::from_millis),
    })
}

/// Normalises an event: every line break becomes a line feed, and an empty event is dropped.
fn normal(event: &SseEvent) -> Option<SseEvent> {
    let data = String::from_utf8(event.data.to_vec()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
    let event = SseEvent { data: data.into(), ..event.clone() };
    (event != SseEvent::default()).then_some(event)
}

/// Splits the stream at these positions.
fn cut<'s>(stream: &'s [u8], cuts: &[usize]) -> Vec<&'s [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|place| place % (stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_round_trip_in_any_chunks(
        events in vec(an_event(), 0..6),
        cuts in vec(any::<usize>(), 0..12),
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        comment in prop::sample::select(vec!["", ": ping\n", ":\n\n"]),
    ) {
        let mut lines = String::new();
        for event in &events {
            lines += comment;
            lines += std::str::from_utf8(&encode(event)).unwrap();
        }
        let stream = lines.replace('\n', line_end);
        let expected: Vec<_> = events.iter().filter_map(normal).map(Ok).collect();
        prop_assert_eq!(decode(&cut(stream.as_bytes(), &cuts)), expected);
    }

    #[test]
    fn decoding_does_not_depend_on_chunks(
        stream in vec(prop::sample::select(b"data:idretryevent \r\n\n\r\x00\xef\xbb\xbf\xc3\xa4109".to_vec()), 0..300),
        cuts in vec(any::<usize>(), 0..20),
        limit in 0..80usize,
    ) {
        prop_assert_eq!(decode_within(limit, &cut(&stream, &cuts)), decode_within(limit, &[&stream]));
    }
}
