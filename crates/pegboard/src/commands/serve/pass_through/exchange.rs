//! Requests in flight between a client and its gateway, so that each is answered if the gateway goes away.

use std::collections::{HashMap, HashSet};

use axum::body::Bytes;
use pegboard::json::{RawJson, scan};
use pegboard::wire::Id;
use serde_json::{Value, json};

/// Start of every message of the gateway that has an id.
const ID_PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
/// Error code of a request that the gateway did not answer.
const CONNECTION_LOST: i64 = -32_000;
/// Notifications that tell a client to list everything again.
const LIST_CHANGES: [&str; 3] = ["tools", "prompts", "resources"];
/// Error code of a request that is one too many.
const TOO_MANY_REQUESTS: i64 = -32_000;
/// Maximum number of requests in flight and of subscriptions. A gateway accepts fewer.
const MAX_REMEMBERED: usize = 10_000;
/// Lower bound for the length of a request.
const MIN_REQUEST_BYTES: usize = 20;

/// Messages of a session that matter if the gateway goes away.
#[derive(Debug, Default)]
pub(super) struct ExchangeLog {
    /// Methods of the client's requests in flight. Ids that the gateway rejects are not among them.
    in_flight: HashMap<Id, Box<str>>,
    /// Ids of the gateway's requests in flight.
    asked: HashSet<Id>,
    /// Ids of requests of a gateway that has gone, to which the client may still respond.
    orphaned: HashSet<Id>,
    /// Ids of requests that are too many, and are not answered yet.
    rejected: Vec<Id>,
    /// The `initialize` request, once it was answered.
    initialize: Option<SessionStart>,
    /// The latest `logging/setLevel` request.
    log_level: Option<Bytes>,
    /// Resources with a subscription.
    subscriptions: HashMap<Box<str>, Subscription>,
}

#[derive(Debug)]
struct SessionStart {
    line: Bytes,
    id: Id,
    is_answered: bool,
    is_initialized: bool,
}

/// A `resources/subscribe` request.
#[derive(Debug)]
struct Subscription {
    id: Id,
    line: Bytes,
}

/// Treatment of a message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    /// The gateway gets it.
    Send,
    /// It responds to a gateway that has gone.
    Drop,
    /// It is too much, and is answered with an error.
    Reject,
}

/// Messages to a new gateway before all others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SessionReplay {
    /// Lines of the client.
    pub(super) lines: Vec<Bytes>,
    /// Ids of those with responses that the client does not expect.
    pub(super) hidden: HashSet<Id>,
}

impl ExchangeLog {
    /// Records a line of the client.
    pub(super) fn sent(&mut self, line: &Bytes) -> Forwarding {
        // What is malformed is answered by the gateway without an id.
        let Ok(message) = RawJson::parse(line.clone()) else { return Forwarding::Send };
        if message.as_bytes().first() == Some(&b'[') {
            if self.in_flight.len() + message.items().count() > MAX_REMEMBERED {
                let ids = message.items().filter_map(|item| request_id(&item));
                self.rejected.extend(ids);
                return Forwarding::Reject;
            }
            message.items().for_each(|item| {
                self.sent_message(&item, None);
            });
            return Forwarding::Send;
        }
        self.sent_message(&message, Some(line))
    }

    fn sent_message(&mut self, message: &RawJson, line: Option<&Bytes>) -> Forwarding {
        let [id, method] = message.peek_all(["id", "method"]);
        let method = method.and_then(scan::decode_string);
        match (id.map(read_id), method) {
            (Some(Some(id)), Some(method)) => {
                if self.in_flight.len() >= MAX_REMEMBERED && !self.in_flight.contains_key(&id) {
                    self.rejected.push(id);
                    return Forwarding::Reject;
                }
                self.in_flight.insert(id.clone(), method.as_ref().into());
                if let Some(line) = line {
                    self.remember(&method, id, message, line);
                }
            }
            (Some(Some(id)), None) => {
                let was_asked = self.asked.remove(&id);
                if self.orphaned.remove(&id) && !was_asked {
                    return Forwarding::Drop;
                }
            }
            (None, Some(method)) if method == "notifications/initialized" => {
                if let Some(start) = &mut self.initialize {
                    start.is_initialized = true;
                }
            }
            (None, Some(method)) if method == "notifications/cancelled" => {
                // It may not be answered.
                if let Some(id) = message.at(&["params", "requestId"]).and_then(|id| read_id(id.as_bytes())) {
                    self.in_flight.remove(&id);
                }
            }
            // A notification, or what the gateway rejects.
            (None | Some(None), _) => {}
        }
        Forwarding::Send
    }

    /// Remembers the requests that make up the state of a session.
    fn remember(&mut self, method: &str, id: Id, message: &RawJson, line: &Bytes) {
        let uri =
            || message.at(&["params", "uri"]).and_then(|uri| serde_json::from_slice(uri.as_bytes()).ok());
        match method {
            "initialize" => {
                let line = line.clone();
                self.initialize = Some(SessionStart { line, id, is_answered: false, is_initialized: false });
            }
            "logging/setLevel" => self.log_level = Some(line.clone()),
            "resources/subscribe" if self.subscriptions.len() < MAX_REMEMBERED => {
                if let Some(uri) = uri() {
                    self.subscriptions.insert(uri, Subscription { id, line: line.clone() });
                }
            }
            "resources/unsubscribe" => {
                uri().and_then(|uri| self.subscriptions.remove::<str>(&uri));
            }
            _ => {}
        }
    }

    /// Records a line of the gateway, or the start of one. Returns the id if it is a response.
    pub(super) fn received(&mut self, line: &[u8]) -> Option<Id> {
        if line.first() == Some(&b'[') {
            let items = scan::items(line).map(|item| self.received(&line[item]));
            items.for_each(drop);
            return None;
        }
        let rest = line.strip_prefix(ID_PREFIX)?;
        let end = id_end(rest)?;
        let (id, rest) = rest.split_at(end);
        let id = read_id(id)?;
        if rest.starts_with(br#","method""#) {
            if self.asked.len() < MAX_REMEMBERED {
                self.asked.insert(id);
            }
            return None;
        }
        let method = self.in_flight.remove(&id);
        if method.as_deref() == Some("resources/subscribe") && rest.starts_with(br#","error""#) {
            self.subscriptions.retain(|_, subscription| subscription.id != id);
        }
        if let Some(start) = &mut self.initialize
            && start.id == id
        {
            start.is_answered = true;
        }
        Some(id)
    }

    /// Returns `true` if the client waits for the handshake.
    pub(super) fn is_handshaking(&self) -> bool {
        self.initialize.as_ref().is_some_and(|start| !start.is_answered)
    }

    /// Returns `true` if some messages among these bytes of the client may not be for the gateway: the client may respond
    /// to requests of a gateway that has gone, or send too much.
    pub(super) fn may_withhold(&self, bytes: &[u8]) -> bool {
        !self.orphaned.is_empty() || self.in_flight.len() + bytes.len() / MIN_REQUEST_BYTES >= MAX_REMEMBERED
    }

    /// Returns the answers to requests that are too many.
    pub(super) fn rejections(&mut self) -> Vec<Value> {
        let rejection = |id| {
            let message = format!("more than {MAX_REMEMBERED} requests in flight: wait for responses");
            let data = json!({"kind": "limit_exceeded", "mayHaveRun": false});
            let error = json!({"code": TOO_MANY_REQUESTS, "message": message, "data": data});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        };
        std::mem::take(&mut self.rejected).into_iter().map(rejection).collect()
    }

    /// Number of the client's requests in flight.
    pub(super) fn n_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns what the client is told when there is no gateway: an error for each request in flight.
    pub(super) fn failed(&mut self, reason: &str) -> Vec<Value> {
        self.initialize.take_if(|start| !start.is_answered);
        self.lost(reason)
    }

    /// Returns what the client is told when the gateway has gone: an error for each request in flight, and that the
    /// gateway's own requests are cancelled. A handshake in flight is repeated instead.
    pub(super) fn lost(&mut self, reason: &str) -> Vec<Value> {
        let handshake = self.initialize.as_ref().filter(|start| !start.is_answered);
        let handshake = handshake.map(|start| start.id.clone());
        let lost = self.in_flight.extract_if(|id, _| Some(id) != handshake.as_ref());
        let mut messages: Vec<Value> = lost.map(|(id, method)| lost_request(&id, &method, reason)).collect();
        for id in std::mem::take(&mut self.asked) {
            let params = json!({"requestId": &id, "reason": "the gateway exited"});
            messages.push(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
            if self.orphaned.len() < MAX_REMEMBERED {
                self.orphaned.insert(id);
            }
        }
        messages
    }

    /// Returns what is sent to a new gateway, so that it knows the session.
    pub(super) fn replay(&self) -> SessionReplay {
        let mut replay = SessionReplay::default();
        let Some(start) = &self.initialize else { return replay };
        replay.lines.push(start.line.clone());
        if !start.is_answered {
            return replay;
        }
        replay.hidden.insert(start.id.clone());
        if start.is_initialized {
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            replay.lines.push(format!("{initialized}\n").into());
        }
        let subscriptions = self.subscriptions.values().map(|subscription| &subscription.line);
        for (number, line) in self.log_level.iter().chain(subscriptions).enumerate() {
            // The client may use the id of the original for another request by now.
            let id = RawJson::from(json!(format!("pegboard-replay-{number}")));
            let Ok(message) = RawJson::parse(line.clone()) else { continue };
            replay.hidden.extend(read_id(id.as_bytes()));
            replay.lines.push(format!("{}\n", message.with("id", &id).as_str()).into());
        }
        replay
    }

    /// Returns the notifications for a client with a session that continues on a new gateway.
    pub(super) fn list_changes(&self) -> Vec<Value> {
        let is_session = self.initialize.as_ref().is_some_and(|start| start.is_initialized);
        let changes = LIST_CHANGES.iter().filter(|_| is_session);
        changes
            .map(|list| json!({"jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed")}))
            .collect()
    }
}

/// Error for a request that the gateway did not answer.
fn lost_request(id: &Id, method: &str, reason: &str) -> Value {
    let may_have_run = matches!(method, "tools/call" | "tasks/cancel" | "tasks/update");
    let outcome = if may_have_run { "it may have run" } else { "it can be repeated" };
    let message = format!("The gateway exited before it answered {method}: {outcome} ({reason})");
    let data = json!({"kind": "transport_error", "mayHaveRun": may_have_run});
    let error = json!({"code": CONNECTION_LOST, "message": message, "data": data});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// Reads an id as the gateway does: two spellings are one id.
fn read_id(id: &[u8]) -> Option<Id> {
    serde_json::from_slice(id).ok()
}

/// Returns the id of a request.
fn request_id(message: &RawJson) -> Option<Id> {
    let [id, method] = message.peek_all(["id", "method"]);
    method.and(id).and_then(read_id)
}

/// Returns the end of the id at the start of `bytes`; `None` if it is not complete.
fn id_end(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'"') {
        return bytes.iter().position(|byte| matches!(byte, b',' | b'}'));
    }
    let mut is_escaped = false;
    let end = bytes[1..].iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &Value) -> Bytes {
        format!("{message}\n").into()
    }

    fn request(id: &Value, method: &str) -> Bytes {
        // As some clients write it: the id comes last.
        line(&json!({"jsonrpc": "2.0", "method": method, "params": {"uri": "a", "id": 0}, "id": id}))
    }

    fn texts(messages: &[Value]) -> String {
        messages.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn requests_without_a_response_are_answered_and_say_whether_they_may_have_run() {
        let mut log = ExchangeLog::default();
        for (id, method) in [
            (json!(1), "tools/call"),
            (json!("a\"\\b"), "tools/call"),
            (json!(2), "tools/list"),
            (json!(3), "ping"),
            (json!(4), "ping"),
        ] {
            assert_eq!(log.sent(&request(&id, method)), Forwarding::Send);
        }
        assert_eq!(log.received(br#"{"jsonrpc":"2.0","id":1,"result":{"id":2}}"#), Some(Id::Number(1)));
        assert_eq!(log.received(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#), None);
        assert_eq!(log.received(br#"[{"jsonrpc":"2.0","id":3,"result":{}}]"#), None);
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
        log.sent(&line(&cancelled));
        let mut lost = log.lost("it crashed");
        lost.sort_by_key(|message| message["id"].to_string());
        insta::assert_snapshot!(texts(&lost), @r#"
        {"jsonrpc":"2.0","id":"a\"\\b","error":{"code":-32000,"message":"The gateway exited before it answered tools/call: it may have run (it crashed)","data":{"kind":"transport_error","mayHaveRun":true}}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"The gateway exited before it answered tools/list: it can be repeated (it crashed)","data":{"kind":"transport_error","mayHaveRun":false}}}
        "#);
        assert_eq!((log.n_in_flight(), log.list_changes().len()), (0, 0));
        assert_eq!(log.replay(), SessionReplay::default(), "a client without a session needs none");
    }

    #[test]
    fn two_spellings_of_an_id_are_one_request() {
        for (sent, received) in
            [(r#""a\/b""#, r#""a/b""#), (r#""\u0061""#, r#""a""#), (r#" "a" "#, r#""a""#), ("7", "7")]
        {
            let mut log = ExchangeLog::default();
            log.sent(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{sent},\"method\":\"ping\"}}\n").into());
            assert_eq!(log.n_in_flight(), 1, "{sent}");
            log.received(format!("{{\"jsonrpc\":\"2.0\",\"id\":{received},\"result\":{{}}}}").as_bytes());
            assert_eq!(log.lost(""), Vec::<Value>::new(), "{sent}");
        }
        for rejected in ["null", "1.5", "-0", "[1]", "true", "99999999999999999999"] {
            let mut log = ExchangeLog::default();
            log.sent(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{rejected},\"method\":\"ping\"}}\n").into());
            assert_eq!(log.n_in_flight(), 0, "{rejected}");
        }
    }

    #[test]
    fn requests_beyond_the_limit_are_answered_and_not_sent() {
        let mut log = ExchangeLog::default();
        for id in 0..MAX_REMEMBERED {
            assert_eq!(log.sent(&request(&json!(id), "ping")), Forwarding::Send);
        }
        let one_more = request(&json!("one more"), "tools/call");
        assert!(log.may_withhold(&one_more));
        assert_eq!(log.sent(&one_more), Forwarding::Reject);
        let batch = json!([
            {"jsonrpc": "2.0", "id": "in a batch", "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/progress"},
        ]);
        assert_eq!(log.sent(&line(&batch)), Forwarding::Reject);
        insta::assert_snapshot!(texts(&log.rejections()), @r#"
        {"jsonrpc":"2.0","id":"one more","error":{"code":-32000,"message":"more than 10000 requests in flight: wait for responses","data":{"kind":"limit_exceeded","mayHaveRun":false}}}
        {"jsonrpc":"2.0","id":"in a batch","error":{"code":-32000,"message":"more than 10000 requests in flight: wait for responses","data":{"kind":"limit_exceeded","mayHaveRun":false}}}
        "#);
        assert_eq!((log.rejections().len(), log.lost("").len()), (0, MAX_REMEMBERED));
    }

    #[test]
    fn responses_to_a_gateway_that_has_gone_are_dropped() {
        let mut log = ExchangeLog::default();
        log.received(br#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#);
        insta::assert_snapshot!(texts(&log.lost("")), @r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the gateway exited"}}"#);
        let response = line(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert_eq!([log.sent(&response), log.sent(&response)], [Forwarding::Drop, Forwarding::Send]);
    }

    #[test]
    fn the_state_of_a_session_is_replayed() {
        let mut log = ExchangeLog::default();
        log.sent(&request(&json!(1), "initialize"));
        assert_eq!((log.lost("").len(), log.is_handshaking()), (0, true));
        assert_eq!((log.replay().lines.len(), log.replay().hidden.len()), (1, 0));
        log.received(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        log.sent(&line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})));
        for method in ["logging/setLevel", "resources/subscribe"] {
            log.sent(&request(&json!(7), method));
        }
        let replay = log.replay();
        let methods: Vec<Value> = replay
            .lines
            .iter()
            .map(|line| serde_json::from_slice::<Value>(line).unwrap()["method"].clone())
            .collect();
        let expected = ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"];
        assert_eq!(methods, expected);
        assert_eq!((replay.hidden.len(), log.list_changes().len()), (3, 3));
        let meta = json!({"progressToken": 8});
        let unsubscribe = json!({
            "jsonrpc": "2.0", "id": 8, "method": "resources/unsubscribe", "params": {"_meta": meta, "uri": "a"},
        });
        log.sent(&line(&unsubscribe));
        assert_eq!(log.replay().lines.len(), 3);
        assert_eq!(log.failed("").len(), 2, "all that is in flight");
    }

    #[test]
    fn a_refused_subscription_is_not_replayed() {
        for (response, n_replayed) in [(json!({"result": {}}), 2), (json!({"error": {"code": -32602}}), 1)] {
            let mut log = ExchangeLog::default();
            log.sent(&request(&json!(1), "initialize"));
            log.received(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
            log.sent(&request(&json!(2), "resources/subscribe"));
            let response = response.to_string();
            log.received(format!(r#"{{"jsonrpc":"2.0","id":2,{}"#, &response[1..]).as_bytes());
            assert_eq!(log.replay().lines.len(), n_replayed, "{response}");
        }
    }
}
