//! Anthropic Messages API.
//!
//! Reasoning: an effort level enables adaptive thinking, which newer models support; a number of tokens sets
//! a thinking budget, which only older models accept. Thinking excludes temperature and forced tools: with a
//! forced tool, the model replies without thinking.

mod reply;
mod request;

pub(super) use reply::MessageReplyBuilder;
pub(super) use request::body;
