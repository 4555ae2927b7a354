//! The demo's web service: weather forecasts described by an OpenAPI document, and a scripted model.

use std::net::Ipv4Addr;

use axum::extract::{OriginalUri, Path};
use axum::routing::{get, post};
use axum::{Json, Router};
use pegboard::prelude::*;
use tokio::net::TcpListener;

/// Name of the service.
pub(super) const NAME: &str = "weather";

/// Starts the service in this process and returns its URL. It runs until the process exits.
pub(super) async fn start() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/openapi.json", get(async || Json(document())))
        .route("/forecast/{city}", get(forecast))
        .route("/reports", post(async |Json(report): Json<Value>| Json(json!({"heard": report}))))
        .route("/v1/chat/completions", post(async |Json(request): Json<Value>| Json(think(&request))));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

async fn forecast(Path(city): Path<String>, OriginalUri(uri): OriginalUri) -> Json<Value> {
    Json(json!({"city": city, "sky": "clear", "asked": uri.to_string()}))
}

/// Returns the model's reply: first a call of the weather tool, then a report.
fn think(request: &Value) -> Value {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let seen = messages.iter().find(|message| message["role"] == "tool").map(text);
    let message = match seen {
        None => {
            let call = json!({"name": "weather__forecast", "arguments": r#"{"city":"Oslo"}"#});
            let calls = json!([{"id": "call_1", "type": "function", "function": call}]);
            json!({"role": "assistant", "content": null, "tool_calls": calls})
        }
        Some(seen) => {
            let prompt = messages.first().map(text).unwrap_or_default();
            let is_clear = seen.contains(r#""sky":"clear""#);
            let advice = if is_clear { "Leave the umbrella at home." } else { "Take an umbrella." };
            json!({"role": "assistant", "content": reported(&prompt, advice).unwrap_or_default()})
        }
    };
    let reason = if message["tool_calls"].is_null() { "stop" } else { "tool_calls" };
    json!({
        "id": "reply", "object": "chat.completion", "created": 0, "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    })
}

/// Wraps a report in the tags that the agent's prompt asks for.
fn reported(prompt: &str, report: &str) -> Option<String> {
    let opening = &prompt[prompt.find("<final-report-")?..];
    let opening = &opening[..=opening.find('>')?];
    let tag = opening[1..].split([' ', '>']).next()?;
    Some(format!("{opening}\n{report}\n</{tag}>"))
}

fn document() -> Value {
    let text = json!({"type": "string"});
    let answer = json!({"200": {"description": "It is so"}});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {
            "/forecast/{city}": {"get": {
                "operationId": "forecast",
                "summary": "Tell the weather of the next days",
                "parameters": [
                    {"name": "city", "in": "path", "required": true, "schema": text},
                    {"name": "days", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 7}},
                ],
                "responses": answer,
            }},
            "/reports": {"post": {
                "operationId": "report",
                "summary": "Tell the service what the weather is like",
                "requestBody": {"required": true, "content": {"application/json": {"schema": {
                    "type": "object", "properties": {"city": text, "sky": text}, "required": ["city", "sky"],
                }}}},
                "responses": answer,
            }},
        },
    })
}
