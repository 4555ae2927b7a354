//! Errors as JSON-RPC has them: a code, a message for a person, and data.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::encode;
use super::id::{Id, integer};
use pegboard_json::Malformed;
use pegboard_json::RawJson;

/// An error that a peer answers with.
///
/// One that came from a peer is encoded as it came, as long as its fields say the same.
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
    /// Which kind of error.
    pub code: i64,
    /// What went wrong, for a person.
    pub message: String,
    /// What else there is to know.
    pub data: Option<RawJson>,
    /// The whole error object of a peer.
    raw: Option<RawJson>,
}

/// Why input is no message, as the error that answers it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", error.message)]
pub struct Unreadable {
    /// The id it carried, if that much could be read.
    pub id: Option<Id>,
    /// Whether it says what it wants; what has an id and no method can only have been meant as an answer.
    pub has_method: bool,
    /// What to answer.
    pub error: Box<RpcError>,
}

/// The codes of JSON-RPC and of MCP.
pub mod code {
    /// The input is no JSON.
    pub const PARSE_ERROR: i64 = -32_700;
    /// The input is JSON and no message.
    pub const INVALID_REQUEST: i64 = -32_600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32_601;
    /// The parameters are not what the method takes.
    pub const INVALID_PARAMS: i64 = -32_602;
    /// A bug on the answering side.
    pub const INTERNAL_ERROR: i64 = -32_603;
    /// A resource is not there, in the session era.
    pub const RESOURCE_NOT_FOUND: i64 = -32_002;
    /// A header says something else than the body.
    pub const HEADER_MISMATCH: i64 = -32_020;
    /// The client lacks a capability that the request needs.
    pub const MISSING_CAPABILITY: i64 = -32_021;
    /// The protocol version is not served here.
    pub const UNSUPPORTED_VERSION: i64 = -32_022;
    /// A person must visit an address before the request can be carried out, in the session era.
    pub const URL_ELICITATION_REQUIRED: i64 = -32_042;
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, raw: None }
    }

    /// The error with data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<RawJson>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// A bug on this side, which the peer can do nothing about.
    pub(crate) fn bug() -> Self {
        Self::new(code::INTERNAL_ERROR, "Internal error: the request ran into a bug")
    }

    /// There is no such method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// The parameters are not what the method takes.
    pub fn invalid_params(problem: impl fmt::Display) -> Self {
        Self::new(code::INVALID_PARAMS, format!("Invalid params: {problem}"))
    }

    /// The error that a peer's error object is. One without code and message still ends the request, as an
    /// error that says so and has the peer's as its data.
    pub(super) fn of_peer(raw: RawJson) -> Self {
        Self::of(raw.clone()).unwrap_or_else(|| {
            Self::invalid_answer("an error has an integer `code` and a text as `message`").with_data(raw)
        })
    }

    /// The peer's answer is none.
    pub(super) fn invalid_answer(problem: impl fmt::Display) -> Self {
        Self::new(code::INTERNAL_ERROR, format!("Invalid answer from the peer: {problem}"))
    }

    fn of(raw: RawJson) -> Option<Self> {
        let code = integer(raw.get("code")?.as_bytes())?;
        let message = raw.get("message")?.text()?.into_owned();
        Some(Self { code, message, data: raw.get("data"), raw: Some(raw) })
    }

    /// The error object of the peer that it came from, unless the fields have been changed since.
    pub(super) fn as_it_came(&self) -> Option<&RawJson> {
        let raw = self.raw.as_ref()?;
        Self::of(raw.clone()).is_some_and(|came| came == *self).then_some(raw)
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
        Self::of(raw)
            .ok_or_else(|| D::Error::custom("an error has an integer `code` and a text as `message`"))
    }
}

impl Unreadable {
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
