//! A session-era MCP server with the tools that a test names, and events for the test.
//!
//! A server reports events to the test through a socket that closes with it.

#![expect(clippy::unwrap_used, reason = "its only client is a gateway under test")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use pegboard_wire::RawJson;
use serde_json::{Value, json};

/// Serves these tools, separated by commas, over stdio.
///
/// # Panics
///
/// If the client sends a message that is not JSON.
pub fn serve(name: &str, tools: &str, socket: &Path) -> Result<()> {
    let mut socket = UnixStream::connect(socket)?;
    // Register with the test before the first response.
    writeln!(socket, "{name} started")?;
    socket.read_exact(&mut [0])?;
    let mut server = ScriptedServer {
        name: name.to_owned(),
        tools: tools.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        socket,
        pending_calls: Vec::new(),
        eliciting_call: None,
        has_required_url: false,
    };
    for line in BufReader::new(std::io::stdin()).lines() {
        server.handle(&RawJson::parse(line?.into()).expect("the gateway sends JSON"));
    }
    Ok(())
}

/// Results that a JSON parser would not preserve byte for byte.
pub fn unusual_results() -> Vec<String> {
    let large = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "0123456789".repeat(500_000));
    let texts = [
        r#"{"content":[]}"#,
        "{}",
        r#"{"content":[{"type":"text","text":""}]}"#,
        r#"{"isError":true,"content":[{"type":"text","text":"no"}],"z":null}"#,
        r#"{"zeta":1,"alpha":{"y":[],"x":{}},"content":[],"content2":[[[]]]}"#,
        r#"{"content":[],"n":[1.0,1.50,1e2,1E+2,-0,0.1e-7,12345678901234567890123,1e400]}"#,
        r#"{ "content" : [ { "type" : "text" , "text" : "spaces" } ] }"#,
        r#"{"content":[{"type":"text","text":"é\u00e9 😀 \ud83d\ude00 \u2028 \/ \" \\ \t"}]}"#,
        r#"{"content":[{"type":"novel","data":{"deep":[1,[2,[3]]]}}],"_meta":{"a/b":1,"c":"d"}}"#,
        r#"{"content":[],"structuredContent":{"b":1,"a":2,"big":18446744073709551616}}"#,
        r#"{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"text","text":"x"}]}"#,
        &large,
    ];
    texts.map(str::to_owned).to_vec()
}

/// Returns the input schema of a tool.
fn input_schema(tool: &str) -> Value {
    let context = json!({"type": "object"});
    match tool {
        "readContent" => json!({
            "type": "object",
            "properties": {"filePath": {"type": "string"}, "context": context, "workspaceContext": context},
            "required": ["filePath", "context"],
        }),
        "listContent" => {
            json!({"type": "object", "properties": {"context": context}, "required": ["context"]})
        }
        _ => json!({"type": "object"}),
    }
}

/// A session-era server that writes raw JSON.
struct ScriptedServer {
    name: String,
    tools: Vec<String>,
    socket: UnixStream,
    /// Ids of pending calls.
    pending_calls: Vec<RawJson>,
    /// Id of the call that waits for input.
    eliciting_call: Option<RawJson>,
    has_required_url: bool,
}

impl ScriptedServer {
    fn handle(&mut self, message: &RawJson) {
        let method = message.get("method").and_then(|method| method.text().map(Cow::into_owned));
        match (method.as_deref(), message.get("id")) {
            (Some("initialize"), Some(id)) => self.initialize(&id),
            (Some("tools/list"), Some(id)) => self.list(&id),
            (Some("tools/call"), Some(id)) => self.call(&id, &message.get("params").unwrap()),
            (Some("ping"), Some(id)) => self.respond(&id, "{}"),
            (Some(_), Some(id)) => self.fail(&id, -32_601, "Method not found"),
            (Some("notifications/cancelled"), None) => self.report("cancelled"),
            (None, Some(_)) => {
                let said = message.get("result").map(|result| result.as_str().to_owned());
                let call = self.eliciting_call.take().unwrap();
                self.respond_text(&call, &format!("asked and heard {}", said.unwrap_or_default()));
            }
            (Some(_) | None, None) => {}
        }
    }

    fn initialize(&self, id: &RawJson) {
        let info = json!({"name": self.name, "version": "1"});
        let result =
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
        self.respond(id, &result.to_string());
    }

    fn list(&self, id: &RawJson) {
        let tool = |name: &String| {
            let description = format!("The tool {name}");
            json!({"name": name, "description": description, "inputSchema": input_schema(name)})
        };
        let tools: Vec<Value> = self.tools.iter().map(tool).collect();
        self.respond(id, &json!({"tools": tools}).to_string());
    }

    fn call(&mut self, id: &RawJson, params: &RawJson) {
        let name = params.get("name").unwrap().text().unwrap().into_owned();
        let arguments = params.get("arguments").unwrap_or_else(RawJson::empty_object);
        match name.as_str() {
            "iserr" => {
                self.respond(id, r#"{"content":[{"type":"text","text":"no"}],"isError":true,"odd":1}"#);
            }
            "rpcerr" => self.fail(id, -32_602, "bad args"),
            "structured" => {
                self.respond(id, r#"{"content":[],"structuredContent":{"b":1,"a":2},"_meta":{"x/y":1}}"#);
            }
            "odd" => {
                self.respond(id, &unusual_results()[arguments.get("i").unwrap().read::<usize>().unwrap()]);
            }
            "environment" => {
                let variables = std::env::vars().filter(|(name, _)| name.starts_with("SAID_"));
                let variables: BTreeMap<String, String> = variables.collect();
                self.respond_text(id, &json!(variables).to_string());
            }
            "parrot" => match arguments.get("answer") {
                Some(answer) => self.respond(id, answer.as_str()),
                None => self.respond_text(id, "nothing to say"),
            },
            "hang" => {
                self.pending_calls.push(id.clone());
                self.report("hangs");
            }
            // Blocks the server until a file appears.
            "doze" => {
                self.report("dozes");
                let until = arguments.get("until").unwrap().read::<String>().unwrap();
                while !std::path::Path::new(&until).exists() {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                self.respond_text(id, "rested");
            }
            "release" => {
                for call in std::mem::take(&mut self.pending_calls) {
                    self.respond_text(&call, "released");
                }
                self.respond_text(id, "done");
            }
            "step" => {
                if let Some(token) = params.at(&["_meta", "progressToken"]) {
                    let token = token.as_str();
                    self.write(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"total":2}}}}"#));
                }
                self.respond_text(id, "stepped");
            }
            "elsewhere" => self.require_url(id),
            "ask" => self.elicit(id),
            _ => {
                self.respond_text(id, &format!("{}/{name} {}", self.name, arguments.as_str()));
            }
        }
    }

    fn elicit(&mut self, id: &RawJson) {
        self.eliciting_call = Some(id.clone());
        let params = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
        let request = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params});
        self.write(&request.to_string());
    }

    /// Requires a URL elicitation on the first call; succeeds on the second.
    fn require_url(&mut self, id: &RawJson) {
        if std::mem::replace(&mut self.has_required_url, true) {
            return self.respond_text(id, "been there");
        }
        let elicitation =
            json!({"mode": "url", "message": "Go", "url": "https://example.org/", "elicitationId": "e"});
        let error = json!({"code": -32_042, "message": "not yet", "data": {"elicitations": [elicitation]}});
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_str()));
    }

    fn report(&mut self, event: &str) {
        // The test may have ended.
        let _ = writeln!(self.socket, "{} {event}", self.name);
    }

    fn respond_text(&self, id: &RawJson, text: &str) {
        self.respond(id, &json!({"content": [{"type": "text", "text": text}]}).to_string());
    }

    fn respond(&self, id: &RawJson, result: &str) {
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_str()));
    }

    fn fail(&self, id: &RawJson, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_str()));
    }

    #[expect(clippy::unused_self, reason = "reads like the other methods")]
    fn write(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        // The gateway may be gone.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
