//! What a tool is called, for good: the toolbox, the server and the name that the server gave it.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// The one identity of a tool. Every other name is printed from it and looked up whole; none is taken apart.
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
    /// The toolbox it is in.
    pub toolbox: ToolboxName,
    /// The server it comes from.
    pub server: ServerName,
    /// The name that the server gave it.
    pub name: ToolName,
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.toolbox, self.server, self.name)
    }
}

/// Why a text cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// It is empty.
    #[error("{what} names must be non-empty strings.")]
    Empty {
        /// What it should have named.
        what: &'static str,
    },
    /// It is too long.
    #[error("{what} names may have at most {MAX_BYTES} bytes, not {n_bytes}")]
    TooLong {
        /// What it should have named.
        what: &'static str,
        /// How long it is.
        n_bytes: usize,
    },
    /// It has characters that a server's name may not have.
    #[error("MCP server names may only contain letters, digits, '-' or '_': {name}")]
    BadServer {
        /// The name.
        name: String,
    },
    /// It has characters that nobody could see or type.
    #[error("{what} names must not contain control characters: {name:?}")]
    Control {
        /// What it should have named.
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// How long a name may be.
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

/// Defines a name: a text that was checked once. Expands to the struct, `new`, `as_str`, `Display`, `Borrow<str>`,
/// and serde as a plain string.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name, if the text can be one.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                check($what, name)?;
                let more: fn(&str) -> Result<(), InvalidName> = $check;
                more(name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as text that is shared.
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
    /// The name of a toolbox.
    ToolboxName, "Toolbox", |_| Ok(())
);
name!(
    /// The name of a server: letters, digits, `-` and `_`.
    ServerName, "MCP server", |name| {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain { Ok(()) } else { Err(InvalidName::BadServer { name: name.to_owned() }) }
    }
);
name!(
    /// The name that a server gave a tool.
    ToolName, "Tool", |_| Ok(())
);
