//! JSON-RPC errors: code, message and data.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::encode;
use super::id::{Id, integer};
use pegboard_json::Malformed;
use pegboard_json::RawJson;

/// A JSON-RPC error object.
///
/// An error received from a peer is encoded unchanged, as long as its fields are not modified.
///
/// ```
/// use pegboard_wire::{RawJson, RpcError, code};
///
/// let data = serde_json::json!({"city": "Bilin"});
/// let error = RpcError::new(code::INVALID_PARAMS, "No such city").with_data(data);
/// assert_eq!(error.to_string(), "No such city (code -32602)");
/// assert_eq!(
///     RawJson::of(&error).as_str(),
///     r#"{"code":-32602,"message":"No such city","data":{"city":"Bilin"}}"#,
/// );
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    /// Error code.
    pub code: i64,
    /// Human-readable message.
    pub message: String,
    /// Additional data.
    pub data: Option<RawJson>,
    /// The raw error object received from a peer.
    raw: Option<RawJson>,
}

/// The error for input that is not a valid message, with the response to send.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", error.message)]
pub struct InvalidMessage {
    /// The id of the message, if it could be read.
    pub id: Option<Id>,
    /// `true` if a method is present; input with an id and no method can only have been meant as a response.
    pub has_method: bool,
    /// The error to answer with.
    pub error: Box<RpcError>,
}

/// Error codes of JSON-RPC and MCP.
pub mod code {
    /// The input is not JSON.
    pub const PARSE_ERROR: i64 = -32_700;
    /// The input is JSON but not a valid message.
    pub const INVALID_REQUEST: i64 = -32_600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32_601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32_602;
    /// An internal error of the answering side.
    pub const INTERNAL_ERROR: i64 = -32_603;
    /// A request that was not processed, or that has lost its response: too many are in flight, its connection closes,
    /// or the memory for responses is full. JSON-RPC leaves the meaning to servers.
    pub const SERVER_ERROR: i64 = -32_000;
    /// The resource does not exist; session era only.
    pub const RESOURCE_NOT_FOUND: i64 = -32_002;
    /// A header contradicts the body.
    pub const HEADER_MISMATCH: i64 = -32_020;
    /// The client lacks a capability that the request needs.
    pub const MISSING_CAPABILITY: i64 = -32_021;
    /// The protocol version is not supported.
    pub const UNSUPPORTED_VERSION: i64 = -32_022;
    /// The user must visit a URL before the request can proceed; session era only.
    pub const URL_ELICITATION_REQUIRED: i64 = -32_042;
}

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, raw: None }
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<RawJson>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Creates an internal error, caused by a bug on this side.
    pub(crate) fn handler_panicked() -> Self {
        Self::new(code::INTERNAL_ERROR, "Internal error: the request handler panicked")
    }

    /// Creates an error for an unknown method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// Creates an error for invalid parameters.
    pub fn invalid_params(problem: impl fmt::Display) -> Self {
        Self::new(code::INVALID_PARAMS, format!("Invalid params: {problem}"))
    }

    /// Parses a peer's error object. A malformed one still ends the request, as an error with the peer's
    /// object as its data.
    pub(super) fn from_peer(raw: RawJson) -> Self {
        Self::from_raw(raw.clone()).unwrap_or_else(|| {
            Self::invalid_response("an error needs an integer `code` and a string `message`").with_data(raw)
        })
    }

    /// Creates the error for an invalid response of the peer.
    pub(super) fn invalid_response(problem: impl fmt::Display) -> Self {
        Self::new(code::INTERNAL_ERROR, format!("Invalid response from the peer: {problem}"))
    }

    fn from_raw(raw: RawJson) -> Option<Self> {
        let code = integer(raw.get("code")?.as_bytes())?;
        let message = raw.get("message")?.text()?.into_owned();
        Some(Self { code, message, data: raw.get("data"), raw: Some(raw) })
    }

    /// Returns the peer's raw error object, unless the fields have been modified since.
    pub(super) fn unchanged_raw(&self) -> Option<&RawJson> {
        let raw = self.raw.as_ref()?;
        Self::from_raw(raw.clone()).is_some_and(|original| original == *self).then_some(raw)
    }
}

impl PartialEq for RpcError {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.message, &self.data) == (other.code, &other.message, &other.data)
    }
}

impl Serialize for RpcError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Vec::new();
        encode::error(self, &mut text);
        RawJson::trusted(text.into()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RpcError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        Self::from_raw(raw)
            .ok_or_else(|| D::Error::custom("an error needs an integer `code` and a string `message`"))
    }
}

impl InvalidMessage {
    pub(super) fn malformed(problem: Malformed) -> Self {
        match problem {
            Malformed::NotText | Malformed::NotJson { .. } => {
                let error = RpcError::new(code::PARSE_ERROR, format!("Parse error: {problem}"));
                Self { id: None, has_method: false, error: Box::new(error) }
            }
            Malformed::TooDeep { .. } => Self::invalid(problem),
        }
    }

    pub(super) fn invalid(problem: impl fmt::Display) -> Self {
        let error = RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {problem}"));
        Self { id: None, has_method: false, error: Box::new(error) }
    }
}
