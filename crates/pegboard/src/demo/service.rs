//! The web service of the demo: it tells the weather, and describes itself by an OpenAPI document.

use std::net::Ipv4Addr;

use axum::extract::{OriginalUri, Path};
use axum::routing::{get, post};
use axum::{Json, Router};
use pegboard::prelude::*;
use tokio::net::TcpListener;

/// What it is called.
pub(super) const NAME: &str = "weather";

/// Starts it in this process, where it runs as long as that does; gives the address of its document.
pub(super) async fn start() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/openapi.json", get(async || Json(document())))
        .route("/forecast/{city}", get(forecast))
        .route("/reports", post(async |Json(report): Json<Value>| Json(json!({"heard": report}))));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/openapi.json"))
}

async fn forecast(Path(city): Path<String>, OriginalUri(uri): OriginalUri) -> Json<Value> {
    Json(json!({"city": city, "sky": "clear", "asked": uri.to_string()}))
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
