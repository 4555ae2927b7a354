//! Servers behind the gateway: this test binary, started as an MCP server.
//!
//! A server reports events to the test through a socket that closes with it.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use pegboard::wire::RawJson;
use serde_json::{Value, json};

/// Entry point of the server process, not a test.
#[test]
#[ignore = "what other tests start"]
fn play() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key));
    let (Some(called), Some(tools), Some(tell)) = (value("called:"), value("tools:"), value("tell:")) else {
        return;
    };
    let mut socket = UnixStream::connect(tell).unwrap();
    // Register with the test before the first response.
    writeln!(socket, "{called} started").unwrap();
    socket.read_exact(&mut [0]).unwrap();
    let mut actor = Actor {
        called: called.to_owned(),
        tools: tools.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        socket,
        hanging: Vec::new(),
        asking: None,
        was_elsewhere: false,
    };
    // End the line printed by the test harness.
    println!();
    for line in BufReader::new(std::io::stdin()).lines() {
        actor.hear(&RawJson::parse(line.unwrap().into()).unwrap());
    }
    std::process::exit(0);
}

/// Arguments that start this program as a server.
pub(crate) fn playing(called: &str, tools: &[&str], tell: &str) -> Vec<String> {
    let role = [format!("called:{called}"), format!("tools:{}", tools.join(",")), format!("tell:{tell}")];
    let harness = ["actor::play", "--exact", "--ignored", "--nocapture"].map(str::to_owned);
    harness.into_iter().chain(role).collect()
}

/// Results that a JSON parser would not preserve byte for byte.
pub(crate) fn corpus() -> Vec<String> {
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

/// Input request of a tool.
fn schema_of(tool: &str) -> Value {
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
struct Actor {
    called: String,
    tools: Vec<String>,
    socket: UnixStream,
    /// Ids of pending calls.
    hanging: Vec<RawJson>,
    /// Id of the call that waits for input.
    asking: Option<RawJson>,
    was_elsewhere: bool,
}

impl Actor {
    fn hear(&mut self, message: &RawJson) {
        let method = message.get("method").and_then(|method| method.text().map(Cow::into_owned));
        match (method.as_deref(), message.get("id")) {
            (Some("initialize"), Some(id)) => self.introduce(&id),
            (Some("tools/list"), Some(id)) => self.list(&id),
            (Some("tools/call"), Some(id)) => self.call(&id, &message.get("params").unwrap()),
            (Some("ping"), Some(id)) => self.answer(&id, "{}"),
            (Some(_), Some(id)) => self.refuse(&id, -32_601, "Method not found"),
            (Some("notifications/cancelled"), None) => self.tell("cancelled"),
            (None, Some(_)) => {
                let said = message.get("result").map(|result| result.as_str().to_owned());
                let call = self.asking.take().unwrap();
                self.say(&call, &format!("asked and heard {}", said.unwrap_or_default()));
            }
            (Some(_) | None, None) => {}
        }
    }

    fn introduce(&self, id: &RawJson) {
        let info = json!({"name": self.called, "version": "1"});
        let result =
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
        self.answer(id, &result.to_string());
    }

    fn list(&self, id: &RawJson) {
        let tool = |name: &String| {
            let description = format!("The tool {name}");
            json!({"name": name, "description": description, "inputSchema": schema_of(name)})
        };
        let tools: Vec<Value> = self.tools.iter().map(tool).collect();
        self.answer(id, &json!({"tools": tools}).to_string());
    }

    fn call(&mut self, id: &RawJson, params: &RawJson) {
        let name = params.get("name").unwrap().text().unwrap().into_owned();
        let arguments = params.get("arguments").unwrap_or_else(RawJson::empty_object);
        match name.as_str() {
            "iserr" => self.answer(id, r#"{"content":[{"type":"text","text":"no"}],"isError":true,"odd":1}"#),
            "rpcerr" => self.refuse(id, -32_602, "bad args"),
            "structured" => {
                self.answer(id, r#"{"content":[],"structuredContent":{"b":1,"a":2},"_meta":{"x/y":1}}"#);
            }
            "odd" => self.answer(id, &corpus()[arguments.get("i").unwrap().read::<usize>().unwrap()]),
            "environment" => {
                let said = std::env::vars().filter(|(name, _)| name.starts_with("SAID_"));
                let said: std::collections::BTreeMap<String, String> = said.collect();
                self.say(id, &json!(said).to_string());
            }
            "parrot" => match arguments.get("answer") {
                Some(answer) => self.answer(id, answer.as_str()),
                None => self.say(id, "nothing to say"),
            },
            "hang" => {
                self.hanging.push(id.clone());
                self.tell("hangs");
            }
            // Blocks the server until a file appears.
            "doze" => {
                self.tell("dozes");
                let until = arguments.get("until").unwrap().read::<String>().unwrap();
                while !std::path::Path::new(&until).exists() {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                self.say(id, "rested");
            }
            "release" => {
                for hanging in std::mem::take(&mut self.hanging) {
                    self.say(&hanging, "released");
                }
                self.say(id, "done");
            }
            "step" => {
                if let Some(token) = params.at(&["_meta", "progressToken"]) {
                    let token = token.as_str();
                    self.write(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"total":2}}}}"#));
                }
                self.say(id, "stepped");
            }
            "elsewhere" => self.send_elsewhere(id),
            "ask" => {
                self.asking = Some(id.clone());
                let params =
                    json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
                let request =
                    json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params});
                self.write(&request.to_string());
            }
            _ => {
                let said = format!("{}/{name} {}", self.called, arguments.as_str());
                self.say(id, &said);
            }
        }
    }

    /// Requires a URL elicitation on the first call; succeeds on the second.
    fn send_elsewhere(&mut self, id: &RawJson) {
        if std::mem::replace(&mut self.was_elsewhere, true) {
            return self.say(id, "been there");
        }
        let visit =
            json!({"mode": "url", "message": "Go", "url": "https://example.org/", "elicitationId": "e"});
        let error = json!({"code": -32_042, "message": "not yet", "data": {"elicitations": [visit]}});
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_str()));
    }

    fn tell(&mut self, what: &str) {
        // The test may have ended.
        let _ = writeln!(self.socket, "{} {what}", self.called);
    }

    fn say(&self, id: &RawJson, text: &str) {
        self.answer(id, &json!({"content": [{"type": "text", "text": text}]}).to_string());
    }

    fn answer(&self, id: &RawJson, result: &str) {
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_str()));
    }

    fn refuse(&self, id: &RawJson, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_str()));
    }

    #[expect(clippy::unused_self, reason = "what an actor says is its own")]
    fn write(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        // The gateway may be gone.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
