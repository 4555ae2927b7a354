//! Web services with an OpenAPI document, end to end.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{CLIENT_KINDS, ConnectedClient, TestEnvironment, open, text, use_tool};

/// Starts a service with a fixed response; records the request lines, each with its `x-key`.
async fn service() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && socket.read_buf(&mut request).await.unwrap() > 0 {}
            let request = String::from_utf8(request).unwrap();
            let key = request.lines().find_map(|line| line.strip_prefix("x-key: ")).unwrap_or("no key");
            log.lock().unwrap().push(format!("{} {key}", request.lines().next().unwrap()));
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"n\": 1.10 }";
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, asked)
}

const DOCUMENT: &str = "
openapi: 3.0.3
info: {title: Catalog, version: '1'}
servers: [{url: SERVICE/v1}]
security: [{key: []}]
components: {securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}}
paths:
  /items/{item-id}:
    get:
      summary: One item
      parameters:
        - {name: item-id, in: path, required: true, schema: {type: string}}
        - {name: lang, in: query, schema: {type: string}}
    post:
      operationId: bad
      parameters: [{$ref: '#/nowhere'}]
";

#[tokio::test]
async fn an_operation_is_a_tool_over_every_transport() {
    for kind in CLIENT_KINDS {
        let (url, asked) = service().await;
        let environment = TestEnvironment::new();
        environment.write("catalog.yaml", &DOCUMENT.replace("SERVICE", &url));
        let configuration = json!({"toolboxes": {"t": {"description": "T", "openapiSpecs": {
            "catalog": {"spec": "catalog.yaml", "baseUrl": format!("{url}/v1"), "credentials": {"key": {"value": "${CATALOG_KEY}"}}},
        }}}});
        let file = environment.write("pegboard.json", &configuration.to_string());
        let connected =
            ConnectedClient::connect_with(environment, &file, None, kind, &[("CATALOG_KEY", "hush-hush")])
                .await;
        open(&connected.client, "t").await;
        let arguments = json!({"item-id": "a/b", "lang": "de"});
        let result = use_tool(&connected.client, ["t", "catalog", "get_items_item_id"], arguments).await;
        assert_eq!(text(&result), r#"{"n": 1.10 }"#);
        assert_eq!(*asked.lock().unwrap(), ["GET /v1/items/a%2Fb?lang=de HTTP/1.1 hush-hush"]);
    }
}

#[tokio::test]
async fn the_command_previews_a_document() {
    let environment = TestEnvironment::new();
    let file = environment.write("catalog.yaml", &DOCUMENT.replace("SERVICE", "https://catalog.example.org"));
    let output =
        environment.command(crate::harness::PROGRAM).arg("openapi").arg(&file).output().await.unwrap();
    assert!(output.status.success());
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap(), @r"
    get_items_item_id  GET /items/{item-id}   One item
    -                  POST /items/{item-id}  cannot resolve reference '#/nowhere': no such node
    warning: 1 operations are called without credentials: scheme 'key' (apiKey) has no credentials
    Catalog: 1 tools, 1 skipped
    ");
    let output = environment
        .command(crate::harness::PROGRAM)
        .args(["openapi", "catalog.yaml", "--json"])
        .output()
        .await
        .unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["tools"][0]["inputSchema"]["required"], json!(["item-id"]));
    assert_eq!(printed["skipped"][0]["operation"], "POST /items/{item-id}");
    let output =
        environment.command(crate::harness::PROGRAM).args(["openapi", "gone.yaml"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error[not_found]: no such file: gone.yaml\n");
}
