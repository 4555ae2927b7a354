//! Exports servers, and Pegboard itself, to the files of clients.

use std::path::{Path, PathBuf};

use pegboard_core::secret::Secret;
use serde_json::{Value, json};

use crate::clients::KnownClient;
use crate::config_file::ConfigFileError;
use crate::edit::{ConfigDocument, EditError, EditPath, FileChange};
use crate::error::ConfigurationError;
use crate::inventory::Inventory;
use crate::section::EntrySection;
use crate::source::ConfigFormat;

/// Name of Pegboard's entry in the files of clients.
pub const SERVER_NAME: &str = "pegboard";

/// Way in which clients connect to Pegboard.
#[derive(Clone)]
pub enum ServeTarget {
    /// They start a program.
    Program {
        /// Command of the program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// They connect to a URL.
    Url {
        /// URL of the endpoint.
        url: String,
        /// Token that they send.
        token: Option<Secret>,
    },
}

/// Entry of a client's file.
pub struct ClientEntry {
    /// Name of the server.
    pub name: String,
    /// The entry in the client's format.
    pub value: Value,
    /// The same, with secrets redacted.
    pub redacted: Value,
}

/// Configured servers in a client's format.
pub struct ExpandedServers {
    /// Entries for the client.
    pub entries: Vec<ClientEntry>,
    /// Names of the servers that the client cannot use, each with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Configuration file of a client, opened for an edit.
///
/// ```
/// use pegboard_config::clients::find_client;
/// use pegboard_config::export::{ClientConfigFile, ClientEntry, ServeTarget};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("mcp.json");
/// let cursor = find_client("cursor").unwrap();
/// let target = ServeTarget::Url { url: "http://127.0.0.1:7332/mcp".to_owned(), token: None };
/// let mut file = ClientConfigFile::open(cursor, &path)?;
/// file.register(&[ClientEntry::pegboard(cursor, &target)?])?;
/// assert!(file.change().has_effect());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClientConfigFile {
    /// Client that the file belongs to.
    pub client: &'static KnownClient,
    /// Its content, which can be edited.
    pub document: ConfigDocument,
    path: PathBuf,
    old: Option<String>,
}

impl ServeTarget {
    /// Returns the entry with which a client uses Pegboard.
    pub fn entry_for(&self, client: &KnownClient) -> Result<Value, ConfigFileError> {
        match self {
            Self::Program { command, args } => Ok(client.entry_for_program(SERVER_NAME, command, args)),
            Self::Url { url, token } => Self::url_entry(client, url, token.as_ref().map(Secret::reveal)),
        }
    }

    /// Returns the same without the token, for files that users share.
    #[must_use]
    pub fn without_token(&self) -> Self {
        match self {
            Self::Url { url, .. } => Self::Url { url: url.clone(), token: None },
            program @ Self::Program { .. } => program.clone(),
        }
    }

    /// Same as [`entry_for`](Self::entry_for), with the token redacted.
    fn redacted_entry_for(&self, client: &KnownClient) -> Result<Value, ConfigFileError> {
        match self {
            Self::Url { url, token: Some(_) } => Self::url_entry(client, url, Some("***")),
            Self::Program { .. } | Self::Url { token: None, .. } => self.entry_for(client),
        }
    }

    fn url_entry(client: &KnownClient, url: &str, token: Option<&str>) -> Result<Value, ConfigFileError> {
        let mut server = json!({"url": url});
        if let Some(token) = token {
            server["headers"] = json!({"Authorization": format!("Bearer {token}")});
        }
        let entry = client.export_entry(SERVER_NAME, &server);
        entry.map_err(|_| ConfigFileError::NoUrlSupport { client: client.title().to_owned() })
    }
}

impl ClientEntry {
    /// Creates the entry of Pegboard.
    pub fn pegboard(client: &KnownClient, target: &ServeTarget) -> Result<Self, ConfigFileError> {
        let (value, redacted) = (target.entry_for(client)?, target.redacted_entry_for(client)?);
        Ok(Self { name: SERVER_NAME.to_owned(), value, redacted })
    }
}

impl ExpandedServers {
    /// Converts the enabled servers of an inventory to the client's format.
    pub fn new(inventory: &Inventory, client: &KnownClient) -> Self {
        let mut expanded = Self { entries: Vec::new(), skipped: Vec::new() };
        for part in inventory.items.iter().filter(|part| !part.is_disabled) {
            let of_toolbox = part.toolbox.as_ref().map(|toolbox| format!("{toolbox}-{}", part.name));
            let is_free = |name: &str| expanded.entries.iter().all(|entry| entry.name != name);
            let name = unused_name(&part.name, of_toolbox, is_free);
            let exported = if part.section == EntrySection::Servers {
                client.export_entry(&name, &part.value).and_then(|value| {
                    let redacted = client.export_entry(&name, &part.redacted)?;
                    Ok(ClientEntry { name, value, redacted })
                })
            } else {
                Err("it is not an MCP server".to_owned())
            };
            match exported {
                Ok(entry) => expanded.entries.push(entry),
                Err(reason) => expanded.skipped.push((part.name.clone(), reason)),
            }
        }
        expanded
    }
}

impl ClientConfigFile {
    /// Opens a client's file; it may not exist yet.
    pub fn open(client: &'static KnownClient, path: &Path) -> Result<Self, ConfigurationError> {
        let (old, document) = match ConfigDocument::read(path) {
            Ok(document) => (Some(document.text()), document),
            Err(ConfigurationError::NotFound { .. }) => (None, ConfigDocument::new(path, String::new())?),
            Err(error) => return Err(error),
        };
        Ok(Self { client, document, path: path.to_owned(), old })
    }

    /// Creates the content of a new file with these entries, secrets redacted.
    pub fn preview(
        client: &'static KnownClient,
        entries: &[ClientEntry],
    ) -> Result<ConfigDocument, ConfigFileError> {
        let path = PathBuf::from(match client.format() {
            ConfigFormat::Json => "it.json",
            ConfigFormat::Yaml => "it.yaml",
            ConfigFormat::Toml => "it.toml",
        });
        let document = ConfigDocument::new(&path, String::new())?;
        let mut file = Self { client, document, path, old: None };
        for entry in entries {
            file.document.set(&file.key_path(&entry.name), &entry.redacted)?;
        }
        Ok(file.document)
    }

    /// Sets the entries. Returns the names of those that had other values. Pegboard's own entry is removed
    /// unless it is among them: with both, the client would list every server twice.
    pub fn register(&mut self, entries: &[ClientEntry]) -> Result<Vec<String>, EditError> {
        let mut replaced = Vec::new();
        for entry in entries {
            let key_path = self.key_path(&entry.name);
            if entry.name != SERVER_NAME
                && self.document.get(&key_path).is_some_and(|there| *there != entry.value)
            {
                replaced.push(entry.name.clone());
            }
            self.document.set(&key_path, &entry.value)?;
        }
        if entries.iter().all(|entry| entry.name != SERVER_NAME) {
            self.document.remove(&self.key_path(SERVER_NAME))?;
        }
        Ok(replaced)
    }

    /// Returns the change that the edit makes.
    pub fn change(&self) -> FileChange {
        FileChange { path: self.path.clone(), old: self.old.clone(), new: self.document.text() }
    }

    /// Key path of a server.
    pub(crate) fn key_path(&self, name: &str) -> EditPath {
        self.client.member_key_path(&self.client.servers_key(&self.document), name)
    }
}

impl KnownClient {
    /// Key path of a server below `servers_key`.
    pub(crate) fn member_key_path(&self, servers_key: &[String], name: &str) -> EditPath {
        let path = EditPath::from_keys(servers_key.iter().map(String::as_str));
        if self.lists_servers() { path.named(name) } else { path.key(name) }
    }

    /// Keys that lead to the servers in this file.
    pub(crate) fn servers_key(&self, document: &ConfigDocument) -> Vec<String> {
        let mut keys = self.key_path().to_vec();
        // One client nests them one level deeper in newer files.
        let deeper = EditPath::from_keys(keys.iter().map(String::as_str)).key("servers");
        let is_deeper =
            |inside: &Value| inside.as_object().is_some_and(|entries| !entries.contains_key("type"));
        if keys == ["mcp"] && document.get(&deeper).is_some_and(is_deeper) {
            keys.push("servers".to_owned());
        }
        keys
    }
}

/// Returns an unused name: `wanted`, then `other`, then `wanted` with a number.
pub(crate) fn unused_name(wanted: &str, other: Option<String>, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(other).chain(numbered);
    names.find(|name| is_free(name)).expect("numbers do not end, and names that are taken do")
}
