//! Why a model did not reply.

use std::time::Duration;

use super::ModelName;
use crate::duration::HumanDuration;

/// Why a model did not reply: who, what happened, and what to do.
///
/// Nothing in it is secret: keys are blotted out of what a provider says before it gets here.
///
/// ```
/// use pegboard_core::model::{ModelError, ModelErrorKind};
///
/// let error = ModelError::new("cloud/large".parse().unwrap(), ModelErrorKind::Unauthorized, "the key has expired");
/// assert_eq!(
///     error.to_string(),
///     "model 'cloud/large' does not take the key: the key has expired. Check apiKey of the provider 'cloud', and \
///      that the variable it names is set"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model '{model}' {}: {reason}. {}", kind.what(), kind.remedy(model))]
pub struct ModelError {
    /// Which model.
    pub model: ModelName,
    /// What happened.
    pub kind: ModelErrorKind,
    /// The particulars, mostly in the provider's own words, without a full stop.
    pub reason: String,
}

impl ModelError {
    /// An error of a model. A full stop at the end of the reason is taken away.
    pub fn new(model: ModelName, kind: ModelErrorKind, reason: impl Into<String>) -> Self {
        let mut reason: String = reason.into();
        reason.truncate(reason.trim_end_matches(['.', ' ', '\n']).len());
        Self { model, kind, reason }
    }

    /// How long the provider wants to be left alone.
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
            | ModelErrorKind::Garbage => None,
        }
    }
}

/// What happened instead of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The provider has been asked too often.
    RateLimited {
        /// How long it wants to be left alone, if it says so.
        retry_after: Option<Duration>,
    },
    /// The provider has trouble of its own.
    Overloaded {
        /// How long it wants to be left alone, if it says so.
        retry_after: Option<Duration>,
    },
    /// The conversation is longer than the model can read.
    ContextTooLong,
    /// The key is missing or wrong, or not for this model.
    Unauthorized,
    /// The provider will not do what it was asked, however often.
    Refused,
    /// The reply did not come in time.
    TimedOut {
        /// How long it was waited for.
        limit: Duration,
    },
    /// There is no way to the provider, or it broke off.
    Unreachable,
    /// What came is no reply.
    Garbage,
}

impl ModelErrorKind {
    /// Whether the same request may do better a little later.
    pub fn may_pass(self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable
            | Self::Garbage => true,
            Self::ContextTooLong | Self::Unauthorized | Self::Refused => false,
        }
    }

    /// The stable word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::ContextTooLong => "context_too_long",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::TimedOut { .. } => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Garbage => "garbage",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "has been asked too often",
            Self::Overloaded { .. } => "has trouble of its own",
            Self::ContextTooLong => "cannot read so much",
            Self::Unauthorized => "does not take the key",
            Self::Refused => "refuses the request",
            Self::TimedOut { .. } => "took too long",
            Self::Unreachable => "cannot be reached",
            Self::Garbage => "replied with what is no reply",
        }
    }

    fn remedy(self, model: &ModelName) -> String {
        let provider = model.provider();
        match self {
            Self::RateLimited { retry_after: Some(time) } | Self::Overloaded { retry_after: Some(time) } => {
                format!("Try again in {}, or name a second model", HumanDuration::from(time))
            }
            Self::RateLimited { retry_after: None } | Self::Overloaded { retry_after: None } => {
                "Try again later, or name a second model".to_owned()
            }
            Self::ContextTooLong => {
                "Give it less to read, or a model with a larger context window".to_owned()
            }
            Self::Unauthorized => {
                format!("Check apiKey of the provider '{provider}', and that the variable it names is set")
            }
            Self::Refused => "Change what it is asked, or the model".to_owned(),
            Self::TimedOut { .. } => "Raise llmTimeout, or ask for less at once".to_owned(),
            Self::Unreachable => format!("Check baseUrl of the provider '{provider}', and the network"),
            Self::Garbage => {
                format!("Check that baseUrl and type of the provider '{provider}' belong together")
            }
        }
    }
}
