//! Exports a native server entry to a client's format.

use serde_json::{Map, Value};

use super::KnownClient;
use crate::inventory::{IDENTITY_SETTINGS, command_line};
use crate::variables::rewrite_references;

impl KnownClient {
    /// Translates a native server entry to the client's format. The error says which part the client cannot
    /// express.
    ///
    /// ```
    /// use pegboard_config::clients::find_client;
    /// use serde_json::json;
    ///
    /// let server = json!({"command": "notes-server", "env": {"KEY": "${NOTES_KEY}"}});
    /// let entry = find_client("opencode").unwrap().export_entry("notes", &server).unwrap();
    /// assert_eq!(entry["environment"]["KEY"], "{env:NOTES_KEY}");
    /// let error = find_client("zed").unwrap().export_entry("notes", &server).unwrap_err();
    /// assert_eq!(error, "Zed cannot express the variable NOTES_KEY");
    /// ```
    pub fn export_entry(&self, name: &str, server: &Value) -> Result<Value, String> {
        // Without these it would be a different server.
        if let Some(key) = IDENTITY_SETTINGS.iter().find(|key| !server[**key].is_null()) {
            return Err(format!("{} cannot express {key}", self.title));
        }
        let server = self.rewrite_references(server)?;
        let line = command_line(&server);
        let url = server["url"].as_str();
        let mut entry = match (url, line.split_first()) {
            (Some(url), _) if url.starts_with("ws") => {
                return Err(format!("{} does not support WebSocket servers", self.title));
            }
            (Some(url), _) => self
                .entry_for_url(name, url)
                .ok_or_else(|| format!("{} does not support servers with a URL", self.title))?,
            (None, Some((command, args))) => self.entry_for_program(name, command, args),
            (None, None) => return Err("the server has neither command nor url".to_owned()),
        };
        if server["type"] == "sse" && entry["type"].as_str().is_some_and(|kind| kind.contains("http")) {
            entry["type"] = Value::from("sse");
        }
        let env = self.env.as_deref().unwrap_or("env");
        let headers = self.headers.as_deref().unwrap_or("headers");
        for (native_key, client_key) in [("env", env), ("headers", headers)] {
            let mapping = server[native_key].as_object().filter(|mapping| !mapping.is_empty());
            if let Some(mapping) = mapping {
                insert_at(&mut entry, client_key, mapping.clone());
            }
        }
        Ok(entry)
    }

    /// Replaces variable references with the client's syntax.
    fn rewrite_references(&self, value: &Value) -> Result<Value, String> {
        let write = |name: &str| Some(self.variable.as_ref()?.replace("{name}", name));
        match value {
            Value::String(text) => rewrite_references(text, &write)
                .map(Value::from)
                .map_err(|what| format!("{} cannot express {what}", self.title)),
            Value::Array(items) => items.iter().map(|item| self.rewrite_references(item)).collect(),
            Value::Object(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| Ok((key.clone(), self.rewrite_references(value)?)));
                entries.collect::<Result<Map<_, _>, String>>().map(Value::Object)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
        }
    }
}

/// Inserts an object at a dotted key path.
fn insert_at(entry: &mut Value, key_path: &str, mapping: Map<String, Value>) {
    let mut target = entry;
    for key in key_path.split('.') {
        target = &mut target[key];
    }
    *target = Value::Object(mapping);
}
