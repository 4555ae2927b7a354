//! Errors of model requests.

use std::time::Duration;

use super::ModelName;
use crate::duration::HumanDuration;

/// Failed model request: the model, the cause and a hint.
///
/// Contains no secrets: keys are redacted from provider messages beforehand.
///
/// ```
/// use pegboard_core::model::{ModelError, ModelErrorKind};
///
/// let error = ModelError::new("cloud/large".parse().unwrap(), ModelErrorKind::Unauthorized, "the key has expired");
/// assert_eq!(
///     error.to_string(),
///     "model 'cloud/large' rejected the API key: the key has expired. Check apiKey of provider 'cloud' and the \
///      variable it refers to"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model '{model}' {}: {reason}. {}", kind.summary(), kind.hint(model))]
pub struct ModelError {
    /// Name of the model.
    pub model: ModelName,
    /// Kind of error.
    pub kind: ModelErrorKind,
    /// Details, mostly the provider's message, without a trailing period.
    pub reason: String,
}

impl ModelError {
    /// Creates an error. A trailing period of the reason is removed.
    pub fn new(model: ModelName, kind: ModelErrorKind, reason: impl Into<String>) -> Self {
        let mut reason: String = reason.into();
        reason.truncate(reason.trim_end_matches(['.', ' ', '\n']).len());
        Self { model, kind, reason }
    }

    /// Returns the delay that the provider asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ModelErrorKind::RateLimited { retry_after } | ModelErrorKind::Overloaded { retry_after } => {
                retry_after
            }
            ModelErrorKind::ContextTooLong
            | ModelErrorKind::Unauthorized
            | ModelErrorKind::Refused
            | ModelErrorKind::TimedOut { .. }
            | ModelErrorKind::Unreachable
            | ModelErrorKind::NotListening
            | ModelErrorKind::MalformedReply => None,
        }
    }
}

/// Kind of a model error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The rate limit of the provider was exceeded.
    RateLimited {
        /// Delay that the provider asked for.
        retry_after: Option<Duration>,
    },
    /// The provider is overloaded or has an internal error.
    Overloaded {
        /// Delay that the provider asked for.
        retry_after: Option<Duration>,
    },
    /// The conversation exceeds the context window.
    ContextTooLong,
    /// The API key is missing, invalid or not permitted to use the model.
    Unauthorized,
    /// The provider rejected the request; a retry cannot succeed.
    Refused,
    /// The reply did not arrive in time.
    TimedOut {
        /// The timeout.
        limit: Duration,
    },
    /// The provider cannot be reached, or the connection broke.
    Unreachable,
    /// Nothing accepts connections at the address of the provider.
    NotListening,
    /// The response is not a valid reply.
    MalformedReply,
}

impl ModelErrorKind {
    /// Returns `true` if a retry may succeed.
    pub fn is_transient(self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable
            | Self::MalformedReply => true,
            Self::ContextTooLong | Self::Unauthorized | Self::Refused | Self::NotListening => false,
        }
    }

    /// Returns the stable identifier.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::ContextTooLong => "context_too_long",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::TimedOut { .. } => "timed_out",
            Self::Unreachable => "unreachable",
            Self::NotListening => "not_listening",
            Self::MalformedReply => "garbage",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "is rate limited",
            Self::Overloaded { .. } => "is overloaded",
            Self::ContextTooLong => "exceeded its context window",
            Self::Unauthorized => "rejected the API key",
            Self::Refused => "rejected the request",
            Self::TimedOut { .. } => "timed out",
            Self::Unreachable => "is unreachable",
            Self::NotListening => "is not running",
            Self::MalformedReply => "sent an invalid reply",
        }
    }

    fn hint(self, model: &ModelName) -> String {
        let provider = model.provider();
        match self {
            Self::RateLimited { retry_after: Some(time) } | Self::Overloaded { retry_after: Some(time) } => {
                format!("Retry in {}, or configure a fallback model", HumanDuration::from(time))
            }
            Self::RateLimited { retry_after: None } | Self::Overloaded { retry_after: None } => {
                "Retry later, or configure a fallback model".to_owned()
            }
            Self::ContextTooLong => {
                "Shorten the conversation, or use a model with a larger context window".to_owned()
            }
            Self::Unauthorized => {
                format!("Check apiKey of provider '{provider}' and the variable it refers to")
            }
            Self::Refused => "Change the request or the model".to_owned(),
            Self::TimedOut { .. } => "Increase llmTimeout, or request less output".to_owned(),
            Self::Unreachable => format!("Check baseUrl of provider '{provider}' and the network connection"),
            Self::NotListening => format!("Start it, or check baseUrl of provider '{provider}'"),
            Self::MalformedReply => {
                format!("Check that baseUrl and type of provider '{provider}' match")
            }
        }
    }
}
