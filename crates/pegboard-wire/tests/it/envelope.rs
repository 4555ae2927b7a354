//! Envelope decoding, and payloads that pass through unchanged.

mod any;
mod raw;

use bytes::Bytes;
use pegboard_wire::{Frame, Id, InvalidMessage, MAX_DEPTH, Message, RawJson, Request, RpcError, code};
use serde_json::json;

#[test]
fn message_kinds_are_distinguished() {
    check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping");
    check(r#" {"method":"m","params":{"a":1},"id":"x","jsonrpc":"2.0"} "#, r#"request "x" m {"a":1}"#);
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#, "request 1 m [1]");
    check(r#"{"jsonrpc":"2.0","method":"m","params":{}}"#, "notification m {}");
    check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null");
    check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#, "error 1 no (code -1)");
    check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#, "error null no (code -1)");
}

#[test]
fn null_parameters_are_none() {
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, "request 1 m");
    check(r#"{"jsonrpc":"2.0","method":"m","params": null }"#, "notification m");
}

#[test]
fn names_and_strings_may_contain_escapes() {
    check(r#"{"jsonrpc":"2\u002e0","id":1,"\u006dethod":"tools\/list"}"#, "request 1 tools/list");
    check(r#"{"jsonrpc":"2.0","id":"\ud83d\ude00\n","method":"m"}"#, "request \"😀\\n\" m");
}

#[test]
fn invalid_json_is_a_parse_error() {
    check("", "-32700 null: Parse error: not JSON, at byte 0");
    check("{", "-32700 null: Parse error: not JSON, at byte 1");
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, "-32700 null: Parse error: not JSON, at byte 38");
    check(r#"{"jsonrpc":"2.0","id":01,"method":"m"}"#, "-32700 null: Parse error: not JSON, at byte 23");
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m",}"#, "-32700 null: Parse error: not JSON, at byte 37");
    check(r#"[{"jsonrpc":"2.0","id":1,"method":"m"}"#, "-32700 null: Parse error: not JSON, at byte 38");
    check(&b"{\"a\":\"\xff\"}"[..], "-32700 null: Parse error: not UTF-8");
}

#[test]
fn json_that_is_not_a_message_is_an_invalid_request() {
    for value in ["null", "7", "\"text\"", " true "] {
        check(value, "-32600 null: Invalid request: a message must be an object");
    }
    check("{}", "-32600 null: Invalid request: `jsonrpc` must be \"2.0\"");
    check(r#"{"id":1,"method":"m"}"#, "-32600 1: Invalid request: `jsonrpc` must be \"2.0\"");
    check(r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "-32600 1: Invalid request: `jsonrpc` must be \"2.0\"");
    check(r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "-32600 1: Invalid request: `jsonrpc` must be \"2.0\"");
    check(r#"{"jsonrpc":"2.0","id":1}"#, "-32600 1: Invalid request: neither a call nor a response");
    check(
        r#"{"jsonrpc":"2.0","id":1,"Method":"m"}"#,
        "-32600 1: Invalid request: neither a call nor a response",
    );
    check(r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "-32600 1: Invalid request: `method` must be a string");
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
        "-32600 1: Invalid request: `method` must be a string",
    );
    for params in ["7", "\"x\"", "false"] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"m","params":{params}}}"#);
        check(message, r#"-32600 "a": Invalid request: `params` must be an object or an array"#);
    }
}

#[test]
fn a_call_must_not_be_a_response_too() {
    let expected = "-32600 1: Invalid request: both a call and a response";
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, expected);
    check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"method":"m"}"#, expected);
}

#[test]
fn duplicate_envelope_members_are_rejected() {
    for (name, value) in [("jsonrpc", "\"2.0\""), ("method", "\"m\""), ("params", "{}")] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{}},"{name}":{value}}}"#);
        check(message, &format!("-32600 1: Invalid request: duplicate `{name}`"));
    }
    check(r#"{"jsonrpc":"2.0","id":1,"method":"m","id":1}"#, "-32600 null: Invalid request: duplicate `id`");
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}"#,
        "-32600 1: Invalid request: duplicate `method`",
    );
    // Unknown members may occur any number of times.
    check(r#"{"jsonrpc":"2.0","method":"m","x":1,"x":2,"ID":3}"#, "notification m");
}

#[test]
fn ids_are_strings_or_integers() {
    for (id, shown) in [
        ("0", "0"),
        ("-1", "-1"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        (r#""""#, r#""""#),
        (r#""007""#, r#""007""#),
        (r#""\u00e9\"""#, r#""é\"""#),
    ] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        check(message, &format!("request {shown} m"));
        assert_eq!(serde_json::from_str::<Id>(id).map(|id| show_id(Some(&id))).unwrap(), shown);
    }
    for id in ["null", "true", "1.0", "1e2", "-0", "1.5", "9223372036854775808", "[1]", "{}", r#""\ud800""#] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        check(message, "-32600 null: Invalid request: `id` must be a string or an integer");
        assert!(serde_json::from_str::<Id>(id).is_err(), "{id}");
    }
}

#[test]
fn a_response_needs_an_id() {
    let expected = "-32600 null: Invalid request: a response needs the `id` of its request";
    check(r#"{"jsonrpc":"2.0","result":{}}"#, expected);
    check(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, expected);
    check(r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, expected);
    check(r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#, expected);
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":{},"id":2,"result":1}"#,
        "-32600 null: Invalid request: duplicate `id`",
    );
}

#[test]
fn an_invalid_response_still_ends_its_request() {
    let ends = |answer: &str, problem: &str| {
        check(answer, &format!("error 7 Invalid response from the peer: {problem} (code -32603)"));
    };
    ends(
        r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":""}}"#,
        "both a result and an error",
    );
    ends(r#"{"jsonrpc":"2.0","id":7,"result":1,"result":2}"#, "duplicate `result`");
    ends(r#"{"id":7,"result":1}"#, "`jsonrpc` must be \"2.0\"");
    ends(&format!(r#"{{"jsonrpc":"2.0","result":{},"id":7}}"#, nested(128)), "nested deeper than 128 levels");
}

#[test]
fn a_malformed_error_still_ends_its_request_and_is_kept() {
    for error in [
        "null",
        "\"oops\"",
        "{}",
        r#"{"code":1.0,"message":""}"#,
        r#"{"code":1}"#,
        r#"{"code":1,"message":2}"#,
    ] {
        let message = decoded(format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#));
        let Message::Response(response) = &message else { panic!("{message:?}") };
        let problem = response.result.as_ref().unwrap_err();
        assert_eq!(problem.code, code::INTERNAL_ERROR);
        assert_eq!(problem.data.as_ref().map(RawJson::as_str), Some(error));
        // The error that is passed on is readable by every client.
        assert_eq!(decoded(message.encode()), message);
    }
}

#[test]
fn a_batch_is_decoded_message_by_message() {
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    check(format!(" [ {good} , {good} ] "), "request 1 m; request 1 m");
    check(
        format!("[{good},7,[{good}],{{\"id\":\"a\"}}]"),
        "request 1 m; -32600 null: Invalid request: a message must be an object; \
         -32600 null: Invalid request: nested batch; \
         -32600 \"a\": Invalid request: `jsonrpc` must be \"2.0\"",
    );
    check("[]", "-32600 null: Invalid request: empty batch");
    let many = format!("[{}1]", "1,".repeat(1000));
    check(many, "-32600 null: Invalid request: batch of more than 1000 messages");
    check("[ ]", "-32600 null: Invalid request: empty batch");
}

#[test]
fn deep_nesting_is_rejected_by_id() {
    let request = |depth| format!(r#"{{"jsonrpc":"2.0","method":"m","params":{},"id":3}}"#, nested(depth));
    assert!(Message::decode(request(127).into(), MAX_DEPTH).is_ok());
    check(request(128), "-32600 3: Invalid request: nested deeper than 128 levels");
    check(request(1_000_000), "-32600 3: Invalid request: nested deeper than 128 levels");
    check(format!("[{}]", request(127)), "-32600 null: Invalid request: nested deeper than 128 levels");
    check("[".repeat(1000), "-32700 null: Parse error: not JSON, at byte 1000");
    let invalid = Message::decode("{}".into(), 0).unwrap_err();
    assert_eq!(invalid.error.message, "Invalid request: nested deeper than 0 levels");
}

#[test]
fn payloads_round_trip_unchanged() {
    for payload in [
        r#"{"z":1,"a":2,"m":3}"#,
        r#"{"big":12345678901234567890123,"exact":1e2,"more":-0.10E+05,"over":1e999}"#,
        r#"{ "spaced" : [ 1 , 2 ] }"#,
        r#"{"twice":1,"twice":2}"#,
        r#"{"text":"\u0041\/\ud83d\ude00 \ud800 é 😀"}"#,
        r#"{"unknown":{"deep":[null,true,false,{}]}}"#,
    ] {
        for (before, after) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"#, "}"),
            (r#"{"jsonrpc":"2.0","method":"m","params":"#, "}"),
            (r#"{"jsonrpc":"2.0","id":"x","result":"#, "}"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no","data":"#, r#","more":1}}"#),
        ] {
            let text = format!("{before}{payload}{after}");
            assert_eq!(decoded(text.clone()).encode(), text);
        }
    }
}

#[test]
fn unknown_members_are_kept() {
    for (text, encoded) in [
        (
            r#"{"trace": [1, 2],"jsonrpc":"2.0","id":1,"method":"m", "\u0061" : 1e2,"params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"trace":[1, 2],"\u0061":1e2}"#,
        ),
        (r#"{"x":1,"jsonrpc":"2.0","method":"m"}"#, r#"{"jsonrpc":"2.0","method":"m","x":1}"#),
        (r#"{"x":1,"jsonrpc":"2.0","id":1,"result":2}"#, r#"{"jsonrpc":"2.0","id":1,"result":2,"x":1}"#),
        (
            r#"{"params":3,"jsonrpc":"2.0","id":1,"result":2}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":2,"params":3}"#,
        ),
    ] {
        assert_eq!(decoded(text).encode(), encoded);
        assert_eq!(decoded(encoded), decoded(text));
    }
}

#[test]
fn a_peers_error_round_trips_until_modified() {
    let text = r#"{"jsonrpc":"2.0","id":1,"error":{"message":"\u006eo","hint":1.0,"code":-5}}"#;
    let Message::Response(mut response) = decoded(text) else { panic!() };
    assert_eq!(response.result, Err(RpcError::new(-5, "no")));
    assert_eq!(Message::Response(response.clone()).encode(), text);

    response.result = response.result.map_err(|error| error.with_data(json!([1])));
    let changed = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no","data":[1]}}"#;
    assert_eq!(Message::Response(response).encode(), changed);
}

#[test]
fn an_error_round_trips_as_json() {
    let error = RpcError::new(-5, "“no”\n").with_data(json!({"a": 1}));
    let text = serde_json::to_string(&error).unwrap();
    assert_eq!(text, r#"{"code":-5,"message":"“no”\n","data":{"a":1}}"#);
    assert_eq!(serde_json::from_str::<RpcError>(&text).unwrap(), error);
    assert!(serde_json::from_str::<RpcError>(r#"{"code":-5}"#).is_err());
}

#[test]
fn messages_are_escaped_correctly() {
    let request = Request::new(Id::Text("a\"b\\\u{1}\u{8}\u{1f}\n\r\té".into()), "m\n", None);
    let encoded = Message::Request(request).encode();
    assert_eq!(encoded, r#"{"jsonrpc":"2.0","id":"a\"b\\\u0001\u0008\u001f\n\r\té","method":"m\n"}"#);
    for number in [0, 9, 10, -1, i64::MAX, i64::MIN] {
        let encoded = Message::response(Some(Id::Number(number)), Ok(RawJson::of(&1))).encode();
        assert_eq!(encoded, format!(r#"{{"jsonrpc":"2.0","id":{number},"result":1}}"#));
    }
}

#[test]
fn a_line_has_one_line_break() {
    let pretty = format!("{{\r\n \"a\" : \"{}\\n\"\n}}", "é".repeat(200));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{pretty},"x":[{}1]}}"#, "\n");
    let mut line = b"before\n".to_vec();
    decoded(text.clone()).encode_line(&mut line);
    assert_eq!(line, format!("before\n{}\n", text.replace(['\n', '\r'], " ")).as_bytes());
}

#[test]
fn a_batch_can_be_encoded() {
    let messages = [Message::notification("a", None), Message::request(Id::Number(1), "b", None)];
    let batch = Message::encode_batch(&messages);
    let frame = Message::decode(batch, MAX_DEPTH).unwrap();
    assert_eq!(frame, Frame::Batch(messages.map(Ok).to_vec()));
    assert_eq!(Message::encode_batch(&[]), "[]");
}

#[track_caller]
fn check(input: impl Into<Vec<u8>>, expected: &str) {
    let shown = match Message::decode(Bytes::from(input.into()), MAX_DEPTH) {
        Ok(Frame::Single(message)) => show(&Ok(message)),
        Ok(Frame::Batch(messages)) => messages.iter().map(show).collect::<Vec<_>>().join("; "),
        Err(unreadable) => show(&Err(unreadable)),
    };
    assert_eq!(shown, expected);
}

fn show(message: &Result<Message, InvalidMessage>) -> String {
    let params =
        |params: &Option<RawJson>| params.as_ref().map(|raw| format!(" {raw:?}")).unwrap_or_default();
    match message {
        Ok(Message::Request(call)) => {
            format!("request {} {}{}", show_id(Some(&call.id)), call.method, params(&call.params))
        }
        Ok(Message::Notification(call)) => format!("notification {}{}", call.method, params(&call.params)),
        Ok(Message::Response(answer)) => match &answer.result {
            Ok(result) => format!("result {} {result:?}", show_id(answer.id.as_ref())),
            Err(error) => format!("error {} {error}", show_id(answer.id.as_ref())),
        },
        Err(InvalidMessage { id, error, .. }) => {
            format!("{} {}: {}", error.code, show_id(id.as_ref()), error.message)
        }
    }
}

fn show_id(id: Option<&Id>) -> String {
    RawJson::of(&id).as_str().to_owned()
}

/// Decodes a single message.
#[track_caller]
fn decoded(input: impl Into<Bytes>) -> Message {
    match Message::decode(input.into(), MAX_DEPTH) {
        Ok(Frame::Single(message)) => message,
        other => panic!("not one message: {other:?}"),
    }
}

/// Returns arrays and objects nested this deep.
fn nested(depth: usize) -> String {
    let opening: String = (0..depth).map(|level| if level % 3 == 1 { r#"{"a":"# } else { "[" }).collect();
    let closing: String = (0..depth).rev().map(|level| if level % 3 == 1 { '}' } else { ']' }).collect();
    let inside = if depth % 3 == 2 { "1" } else { "" };
    format!("{opening}{inside}{closing}")
}
