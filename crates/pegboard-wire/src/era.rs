//! Protocol eras and revisions, and the `_meta` keys of the stateless ones.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{RpcError, code};
use pegboard_json::RawJson;

/// The protocol era of a connection, a client or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Opens with `initialize` and keeps a session.
    Session,
    /// Every request is self-contained.
    Stateless,
}

impl Era {
    /// Returns the era that the parameters of a request claim.
    pub(crate) fn claimed(params: Option<&RawJson>) -> Self {
        if claimed_revision(params).is_some() { Self::Stateless } else { Self::Session }
    }
}

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: sessions, HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26: streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: structured output, elicitation.
    V2025_06_18,
    /// 2025-11-25: the last one with sessions.
    V2025_11_25,
    /// 2026-07-28: stateless.
    V2026_07_28,
}

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// The newest revision with sessions.
    pub const NEWEST_WITH_SESSIONS: Self = Self::V2025_11_25;
    /// The newest stateless revision.
    pub const NEWEST_STATELESS: Self = Self::V2026_07_28;

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the era of the revision.
    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Stateless } else { Era::Session }
    }

    /// Returns `true` if every request is self-contained, without a handshake.
    pub fn is_stateless(self) -> bool {
        self.era() == Era::Stateless
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for text that names no known revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol revision")]
pub struct UnknownRevision;

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(text: &str) -> Result<Self, UnknownRevision> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text).ok_or(UnknownRevision)
    }
}

impl Serialize for Revision {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The `_meta` keys defined by the protocol.
pub mod meta {
    /// The protocol revision of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The client that sends a request.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The client's capabilities.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The server that sends a result.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The minimum level of log messages for a request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The subscription that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

    /// Fields of a request that each side of a gateway sets itself: they would make a server of both eras treat a
    /// request of a session as stateless. The log level is the last.
    pub(crate) const PROTOCOL_FIELDS: [&str; 5] =
        ["progressToken", PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL];
}

/// Returns the revision that a request claims in its `_meta`, if any.
pub fn claimed_revision(params: Option<&RawJson>) -> Option<RawJson> {
    params?.get("_meta")?.get(meta::PROTOCOL_VERSION)
}

/// Returns the error for a revision that the server does not support.
pub fn unsupported_version(requested: &str) -> RpcError {
    #[derive(Serialize)]
    struct UnsupportedVersionData<'d> {
        supported: [Revision; 1],
        requested: &'d str,
    }
    let data = RawJson::of(&UnsupportedVersionData { supported: [Revision::NEWEST_STATELESS], requested });
    RpcError::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data)
}

/// Severity of a log message, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the syslog levels are self-explanatory")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// Returns the level as JSON.
    pub fn as_json(self) -> RawJson {
        RawJson::trusted(Bytes::from_static(match self {
            Self::Debug => br#""debug""#.as_slice(),
            Self::Info => br#""info""#,
            Self::Notice => br#""notice""#,
            Self::Warning => br#""warning""#,
            Self::Error => br#""error""#,
            Self::Critical => br#""critical""#,
            Self::Alert => br#""alert""#,
            Self::Emergency => br#""emergency""#,
        }))
    }
}
