//! A server of ours in the words of a client.

use serde_json::{Map, Value};

use super::Client;
use crate::survey::TELLING;
use crate::variables::rewritten;

impl Client {
    /// How it writes down a server that is described in our words; why not, if it cannot say all of it.
    ///
    /// ```
    /// use pegboard_config::clients::client;
    /// use serde_json::json;
    ///
    /// let ours = json!({"command": "notes-server", "env": {"KEY": "${NOTES_KEY}"}});
    /// let entry = client("opencode").unwrap().entry("notes", &ours).unwrap();
    /// assert_eq!(entry["environment"]["KEY"], "{env:NOTES_KEY}");
    /// let refused = client("zed").unwrap().entry("notes", &ours).unwrap_err();
    /// assert_eq!(refused, "Zed cannot be told the variable NOTES_KEY");
    /// ```
    pub fn entry(&self, name: &str, server: &Value) -> Result<Value, String> {
        // Without these it would be another server.
        if let Some(key) = TELLING.iter().find(|key| !server[**key].is_null()) {
            return Err(format!("{} cannot be told its {key}", self.title));
        }
        let server = self.rewritten(server)?;
        let line = ["command", "args"].iter().flat_map(|key| words(&server[*key])).collect::<Vec<_>>();
        let url = server["url"].as_str();
        let mut entry = match (url, line.split_first()) {
            (Some(url), _) if url.starts_with("ws") => {
                return Err(format!("{} knows no servers that are spoken to over WebSocket", self.title));
            }
            (Some(url), _) => self
                .entry_for_url(name, url)
                .ok_or_else(|| format!("{} does not go to addresses that are in its file", self.title))?,
            (None, Some((command, args))) => self.entry_for_program(name, command, args),
            (None, None) => return Err("nothing says what it is".to_owned()),
        };
        if server["type"] == "sse" && entry["type"].as_str().is_some_and(|kind| kind.contains("http")) {
            entry["type"] = Value::from("sse");
        }
        let env = self.env.as_deref().unwrap_or("env");
        let headers = self.headers.as_deref().unwrap_or("headers");
        for (ours, theirs) in [("env", env), ("headers", headers)] {
            let told = server[ours].as_object().filter(|told| !told.is_empty());
            if let Some(told) = told {
                put(&mut entry, theirs, told.clone());
            }
        }
        Ok(entry)
    }

    /// The same with variables as it writes them.
    fn rewritten(&self, value: &Value) -> Result<Value, String> {
        let write = |name: &str| Some(self.variable.as_ref()?.replace("{name}", name));
        match value {
            Value::String(text) => rewritten(text, &write)
                .map(Value::from)
                .map_err(|what| format!("{} cannot be told {what}", self.title)),
            Value::Array(items) => items.iter().map(|item| self.rewritten(item)).collect(),
            Value::Object(entries) => {
                let entries = entries.iter().map(|(key, value)| Ok((key.clone(), self.rewritten(value)?)));
                entries.collect::<Result<Map<_, _>, String>>().map(Value::Object)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
        }
    }
}

/// A word, or a list of them.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(word) => vec![word.clone()],
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// Puts something at the end of a way of keys, with the objects that are missing on it.
fn put(entry: &mut Value, way: &str, told: Map<String, Value>) {
    let mut place = entry;
    for key in way.split('.') {
        place = &mut place[key];
    }
    *place = Value::Object(told);
}
