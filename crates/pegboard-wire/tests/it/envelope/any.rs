//! Property tests of the envelope.

use pegboard_wire::{Frame, Id, InvalidMessage, MAX_DEPTH, Message, RawJson, RpcError};
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Strategy, any, prop_oneof, proptest};
use proptest::sample::{Index, select};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::decoded;

const NUMBER: &str = r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?";
const SPACE: &str = r"[ \t\r\n]{0,3}";

proptest! {
    #[test]
    fn valid_json_is_accepted(text in json(string())) {
        agrees_with_serde(text.as_bytes())?;
    }

    #[test]
    fn corrupted_json_is_judged_like_serde(text in json(string()), corruptions in vec(corruption(), 1..4)) {
        let mut bytes = text.into_bytes();
        apply(&corruptions, &mut bytes);
        agrees_with_serde(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes_are_judged_like_serde(bytes in vec(byte(), 0..40)) {
        agrees_with_serde(&bytes)?;
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(
        text in prop_oneof![message(), json(string())],
        corruptions in vec(corruption(), 0..4),
        max_depth in 0..6_usize,
    ) {
        let mut bytes = text.into_bytes();
        apply(&corruptions, &mut bytes);
        let _ = Message::decode(bytes.clone().into(), max_depth);
        let answer = |unreadable: InvalidMessage| Message::response(unreadable.id, Err(*unreadable.error));
        let messages = match Message::decode(bytes.into(), MAX_DEPTH) {
            Ok(Frame::Single(message)) => vec![message],
            Ok(Frame::Batch(messages)) => {
                messages.into_iter().map(|message| message.unwrap_or_else(answer)).collect()
            }
            Err(unreadable) => vec![answer(unreadable)],
        };
        // For any input, the output is a valid message.
        for message in messages {
            assert_eq!(decoded(message.encode()), message);
        }
    }

    #[test]
    fn a_decoded_message_round_trips(text in message()) {
        let message = decoded(text.clone());
        let encoded = message.encode();
        assert_eq!(decoded(encoded.clone()), message);
        assert_eq!(decoded(encoded.clone()).encode(), encoded);
        assert_eq!(encoded.len(), message.encode().len());

        // The payload and unknown members are preserved byte for byte.
        let before = RawJson::parse(text.into()).unwrap();
        let after = RawJson::parse(encoded).unwrap();
        for name in ["params", "result", "error", "x", "trace"] {
            assert_eq!(after.get(name), before.get(name));
        }
        let tree = |raw: &RawJson, name| raw.get(name).map(|value| value.to_value());
        for name in ["id", "method"] {
            assert_eq!(tree(&after, name), tree(&before, name));
        }

        let mut line = Vec::new();
        message.encode_line(&mut line);
        let breaks = line.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count();
        assert_eq!((breaks, line.last()), (1, Some(&b'\n')));
        assert_eq!(line.len(), message.encode().len() + 1);
    }

    #[test]
    fn member_access_agrees_with_a_value_tree(object in object(), name in name(), new in json(safe_string())) {
        let raw = RawJson::parse(object.into()).unwrap();
        let new = RawJson::parse(new.into()).unwrap();
        let mut tree = raw.to_value();
        assert_eq!(raw.names(), tree.as_object().unwrap().keys().cloned().collect::<Vec<_>>());
        assert_eq!(raw.get(&name).map(|value| value.to_value()), tree.get(&name).cloned());

        tree.as_object_mut().unwrap().shift_remove(&name);
        let without = RawJson::parse(raw.without(&name).into_bytes()).unwrap();
        assert_eq!(without.to_value(), tree);

        let with = RawJson::parse(raw.with(&name, &new).into_bytes()).unwrap();
        assert_eq!(with.get(&name), Some(new));
        assert_eq!(with.without(&name).to_value(), tree);
    }

    #[test]
    fn constructed_messages_round_trip(
        id in id(),
        text in any::<String>(),
        number in any::<i64>(),
        payload in json(string()),
    ) {
        let payload = RawJson::parse(payload.into()).unwrap();
        let error = RpcError::new(number, text.clone()).with_data(payload.clone());
        let params = RawJson::empty_object().with("a", &payload);
        for message in [
            Message::request(id.clone(), &*text, Some(params.clone())),
            Message::notification(&*text, Some(params)),
            Message::response(Some(id), Err(error.clone())),
            Message::response(None, Err(error)),
        ] {
            assert_eq!(decoded(message.encode()), message);
            assert!(serde_json::from_slice::<Value>(&Message::notification(&*text, None).encode()).is_ok());
        }
    }
}

/// Checks that our parser agrees with serde on validity and extent.
fn agrees_with_serde(bytes: &[u8]) -> Result<(), proptest::test_runner::TestCaseError> {
    let ours = RawJson::parse(bytes.to_vec().into());
    let theirs = serde_json::from_slice::<&RawValue>(bytes);
    proptest::prop_assert_eq!(
        ours.as_ref().ok().map(RawJson::as_str),
        theirs.as_ref().ok().map(|raw| raw.get())
    );
    Ok(())
}

/// One corruption of a text.
#[derive(Clone, Debug)]
enum Corruption {
    Change(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    End(Index),
}

impl Corruption {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |index: &Index| index.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match self {
            _ if bytes.is_empty() => {}
            Self::Change(index, byte) => {
                let at = place(index);
                bytes[at] = *byte;
            }
            Self::Insert(index, byte) => bytes.insert(place(index), *byte),
            Self::Remove(index) => {
                bytes.remove(place(index));
            }
            Self::End(index) => bytes.truncate(place(index)),
        }
    }
}

fn apply(corruptions: &[Corruption], bytes: &mut Vec<u8>) {
    for corruption in corruptions {
        corruption.apply(bytes);
    }
}

/// Any byte, mostly one that is significant in JSON.
fn byte() -> impl Strategy<Value = u8> {
    let telling = select(&b"{}[]\",:\\ \n01-.eEutrfalsn\x00\x1f\x7f\x80\xff"[..]);
    prop_oneof![3 => telling, 1 => any::<u8>()]
}

fn corruption() -> impl Strategy<Value = Corruption> {
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Corruption::Change(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Corruption::Insert(at, byte)),
        any::<Index>().prop_map(Corruption::Remove),
        any::<Index>().prop_map(Corruption::End),
    ]
}

fn id() -> impl Strategy<Value = Id> {
    let text = any::<String>().prop_map(|text| Id::Text(text.into()));
    prop_oneof![any::<i64>().prop_map(Id::Number), text]
}

/// The text of any string: most are short, some span several blocks of the scanner.
fn string() -> BoxedStrategy<String> {
    let short = r#""([ -!#-\[\]-~é“😀]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,6}""#;
    let long = r#""([ -!#-\[\]-~é“😀]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){0,90}""#;
    prop_oneof![15 => short, 1 => long].boxed()
}

/// The text of a string without unpaired surrogates, which every parser can represent.
fn safe_string() -> BoxedStrategy<String> {
    r#""([ -!#-\[\]-~é“😀]|\\["\\/bfnrt]|\\u00[0-9a-fA-F]{2}){0,6}""#.boxed()
}

/// The text of any JSON value with strings like `string`.
fn json(string: BoxedStrategy<String>) -> impl Strategy<Value = String> {
    let literal = select(&["null", "true", "false", "[]", "{}", "\"\""][..]).prop_map(str::to_owned);
    let leaf = spaced(prop_oneof![string.clone(), NUMBER, literal]);
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let member =
            (spaced(string.clone()), inner.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        spaced(prop_oneof![
            vec(inner, 1..6).prop_map(|items| format!("[{}]", items.join(","))),
            vec(member, 1..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        ])
    })
}

fn spaced(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (SPACE, text, SPACE).prop_map(|(before, text, after)| before + &text + &after)
}

/// One of few names, so that they collide.
fn name() -> impl Strategy<Value = String> {
    select(&["a", "b", "ab", "", "é", "\"", "\\", "\n", "😀", "a/b"][..]).prop_map(str::to_owned)
}

/// The text of a name, plain or fully escaped.
fn spelled() -> impl Strategy<Value = String> {
    (name(), any::<bool>()).prop_map(|(name, is_escaped)| {
        if is_escaped {
            let units = name.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
            format!("\"{}\"", units.collect::<String>())
        } else {
            serde_json::to_string(&name).expect("text can be written as JSON")
        }
    })
}

/// The text of an object without duplicate members.
fn object() -> impl Strategy<Value = String> {
    vec((spelled(), SPACE, json(safe_string())), 0..6).prop_map(|mut members| {
        let mut names = Vec::new();
        members.retain(|(key, ..)| {
            let name: String = serde_json::from_str(key).expect("keys are strings");
            let is_new = !names.contains(&name);
            names.push(name);
            is_new
        });
        let members: Vec<_> =
            members.into_iter().map(|(key, space, value)| format!("{space}{key}{space}:{value}")).collect();
        format!("{{{} }}", members.join(","))
    })
}

/// The text of any valid message, its members in any order, with some unknown ones.
fn message() -> impl Strategy<Value = String> {
    let id = prop_oneof![any::<i64>().prop_map(|id| id.to_string()), safe_string()];
    let payload = prop_oneof![
        (safe_string(), json(string()))
            .prop_map(|(method, item)| format!("\"method\":{method},\"params\":[{item}]")),
        (safe_string(), json(string()))
            .prop_map(|(method, item)| format!("\"params\": {{\"a\":{item}}}, \"method\" :{method}")),
        json(string()).prop_map(|result| format!("\"result\":{result}")),
        (any::<i64>(), safe_string(), json(string())).prop_map(|(code, message, data)| {
            format!("\"error\":{{\"x\":1e2,\"message\":{message}, \"data\":{data},\"code\": {code}}}")
        }),
    ];
    let others = vec((select(&["x", "trace"][..]), json(string())), 0..3);
    (id, payload, others, SPACE).prop_flat_map(|(id, payload, others, space)| {
        let mut members = vec![format!("\"id\":{id}"), format!("{space}\"jsonrpc\" : \"2.0\""), payload];
        members.extend(others.into_iter().map(|(name, value)| format!("\"{name}\":{space}{value}")));
        proptest::strategy::Just(members)
            .prop_shuffle()
            .prop_map(|members| format!("{{{}}}", members.join(",")))
    })
}
