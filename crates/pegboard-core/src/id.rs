//! Tool identity: toolbox, server and tool name.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// Identity of a tool. Other names are derived from it and looked up as a whole; none is parsed.
///
/// ```
/// use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
///
/// let id = ToolId {
///     toolbox: ToolboxName::new("dev")?,
///     server: ServerName::new("github")?,
///     name: ToolName::new("search_code")?,
/// };
/// assert_eq!(serde_json::to_string(&id).unwrap(), r#"{"toolbox":"dev","server":"github","name":"search_code"}"#);
/// assert!(ServerName::new("two words").is_err());
/// # Ok::<(), pegboard_core::id::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolId {
    /// Toolbox of the tool.
    pub toolbox: ToolboxName,
    /// Server of the tool.
    pub server: ServerName,
    /// Name that the server gave it.
    pub name: ToolName,
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.toolbox, self.server, self.name)
    }
}

/// Reason why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The name is empty.
    #[error("{what} names must be non-empty strings.")]
    Empty {
        /// Kind of name.
        what: &'static str,
    },
    /// The name is too long.
    #[error("{what} names may have at most {MAX_BYTES} bytes, not {n_bytes}")]
    TooLong {
        /// Kind of name.
        what: &'static str,
        /// Length in bytes.
        n_bytes: usize,
    },
    /// The server name has invalid characters.
    #[error("MCP server names may only contain letters, digits, '-' or '_': {name}")]
    BadServer {
        /// Rejected name.
        name: String,
    },
    /// The name has control characters.
    #[error("{what} names must not contain control characters: {name:?}")]
    Control {
        /// Kind of name.
        what: &'static str,
        /// Rejected name.
        name: String,
    },
}

/// Maximum length of a name.
const MAX_BYTES: usize = 256;

fn check(what: &'static str, name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        Err(InvalidName::Empty { what })
    } else if name.len() > MAX_BYTES {
        Err(InvalidName::TooLong { what, n_bytes: name.len() })
    } else if name.chars().any(char::is_control) {
        Err(InvalidName::Control { what, name: name.to_owned() })
    } else {
        Ok(())
    }
}

/// Defines a newtype for validated names. Expands to the struct, `new`, `as_str`, `Display`, `Borrow<str>`,
/// and serde as a plain string.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Validates a name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                check($what, name)?;
                let more: fn(&str) -> Result<(), InvalidName> = $check;
                more(name)?;
                Ok(Self(name.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the name as shared text.
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
                json_schema!({"type": "string", "minLength": 1, "maxLength": MAX_BYTES})
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// Name of a toolbox.
    ToolboxName, "Toolbox", |_| Ok(())
);
name!(
    /// Name of a server: letters, digits, `-` and `_`.
    ServerName, "MCP server", |name| {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain { Ok(()) } else { Err(InvalidName::BadServer { name: name.to_owned() }) }
    }
);
name!(
    /// Name that a server gave a tool.
    ToolName, "Tool", |_| Ok(())
);
