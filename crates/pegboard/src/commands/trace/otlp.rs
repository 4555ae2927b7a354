//! Conversion of a trace to OTLP JSON.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::drawing::operations;

/// OTLP constants: span kinds `CLIENT` and `INTERNAL`, and status code `ERROR`.
const CLIENT: u8 = 3;
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// Converts a call and all of its operations to an OTLP request.
pub(super) fn spans(trace: &Value) -> Value {
    let mut spans = Vec::new();
    let about = OtlpSpans { trace: text(&trace["traceId"]), session: text(&trace["session"]) };
    about.add(&trace["op"], None, 0, &mut spans);
    json!({"resourceSpans": [{
        "resource": {"attributes": [attribute("service.name", &json!({"stringValue": "pegboard"}))]},
        "scopeSpans": [{
            "scope": {"name": "pegboard", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

/// Attributes shared by all spans of a trace.
struct OtlpSpans<'t> {
    trace: &'t str,
    session: &'t str,
}

impl OtlpSpans<'_> {
    fn add(&self, operation: &Value, parent: Option<&str>, depth: usize, spans: &mut Vec<Value>) {
        let id = self.id(text(&operation["opId"]));
        let started = operation["startedAt"].as_u64().unwrap_or_default().saturating_mul(1_000_000);
        let took = operation["latencyMs"].as_f64().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let took = (took * 1_000_000.0).round() as u64;
        let inner = &operation["childSession"];
        let kind = if inner.is_null() { CLIENT } else { INTERNAL };
        let mut span = json!({
            "traceId": self.trace,
            "spanId": id,
            "name": name(operation),
            "kind": kind,
            "startTimeUnixNano": started.to_string(),
            "endTimeUnixNano": started.saturating_add(took).to_string(),
            "attributes": self.attributes(operation),
            "status": if operation["status"] == "failed" { json!({"code": ERROR}) } else { json!({}) },
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = parent.into();
        }
        spans.push(span);
        if depth < MAX_DEPTH {
            for under in operations(inner) {
                self.add(under, Some(&id), depth + 1, spans);
            }
        }
    }

    /// Span id of an operation; stable across runs.
    fn id(&self, operation: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (self.trace, operation).hash(&mut hasher);
        format!("{:016x}", hasher.finish().max(1))
    }

    fn attributes(&self, operation: &Value) -> Vec<Value> {
        let is_model = operation["kind"] == "llm";
        let (named, placed) = if is_model {
            ("gen_ai.request.model", "gen_ai.provider.name")
        } else {
            ("gen_ai.tool.name", "ai.tool.provider")
        };
        let error = &operation["error"];
        let error = if error["kind"].is_string() { &error["kind"] } else { &error["code"] };
        let texts = [
            (named, text(&operation["name"])),
            (placed, text(&operation["server"])),
            ("mcp.session.id", self.session),
            ("error.type", text(error)),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let mut all: Vec<Value> =
            texts.map(|(name, text)| attribute(name, &json!({"stringValue": text}))).collect();
        if let Some(waited) = operation["waitedMs"].as_f64() {
            all.push(attribute("pegboard.waited_ms", &json!({"doubleValue": waited})));
        }
        if operation["cached"] == true {
            all.push(attribute("pegboard.cached", &json!({"boolValue": true})));
        }
        all
    }
}

/// Span name, as in live exports.
fn name(operation: &Value) -> String {
    let name = text(&operation["name"]);
    match text(&operation["kind"]) {
        "llm" => format!("chat {name}"),
        "tool" => format!("execute_tool {name}"),
        _ => name.to_owned(),
    }
}

fn attribute(name: &str, value: &Value) -> Value {
    json!({"key": name, "value": value})
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_child_span() {
        let operation = |id: &str, name: &str| json!({"opId": id, "kind": "tool", "name": name, "server": "shop", "status": "ok", "startedAt": 1_000, "latencyMs": 1.5});
        let mut price = operation("1-1.1-1", "price");
        price["status"] = "failed".into();
        price["error"] = json!({"kind": "timeout"});
        let mut chain = operation("1-1", "buy");
        chain["childSession"] = json!({"turns": [{"ops": [price]}]});
        let trace =
            json!({"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "session": "session-1", "op": chain});
        let document = spans(&trace);
        let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let [outer, inner] = spans.as_slice() else { panic!("{document}") };
        assert_eq!(inner["parentSpanId"], outer["spanId"]);
        assert!(outer.get("parentSpanId").is_none() && outer["spanId"] != inner["spanId"]);
        let mut inner = inner.clone();
        for id in ["spanId", "parentSpanId"] {
            assert_eq!(inner[id].take().as_str().unwrap().len(), 16);
        }
        insta::assert_snapshot!(inner, @r#"{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":null,"name":"execute_tool price","kind":3,"startTimeUnixNano":"1000000000","endTimeUnixNano":"1001500000","attributes":[{"key":"gen_ai.tool.name","value":{"stringValue":"price"}},{"key":"ai.tool.provider","value":{"stringValue":"shop"}},{"key":"mcp.session.id","value":{"stringValue":"session-1"}},{"key":"error.type","value":{"stringValue":"timeout"}}],"status":{"code":2},"parentSpanId":null}"#);
    }
}
