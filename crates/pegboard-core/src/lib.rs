//! What a tool, a call and an answer are.
//!
//! The rooms of this crate, in the order a call meets them:
//!
//! - [`registry`]: tools by name, [`search`](registry::Search), and how one is invoked;
//! - [`id`]: what a tool is called, for good;
//! - [`entry`]: one tool: its name, words, schemas, tags and handler;
//! - [`handler`]: the code behind a tool, written by hand or as a typed function;
//! - [`schema`]: JSON Schema, compiled once, with the messages a person or a model can act on;
//! - [`validation`]: the verdict on one value;
//! - [`call`]: a call from request to end, and the [`Invoker`](call::Invoker) seam that chains call through;
//! - [`arguments`] and [`output`]: what a tool is given and what it answers, as it came;
//! - [`client`]: whoever made a call, as far as the tool can speak to it;
//! - [`model`]: models behind one trait, for those who hold conversations with them;
//! - [`diary`]: where the session of an agent is written down;
//! - [`outcome`]: how a call went, in six fields;
//! - [`error`]: why there is no answer;
//! - [`projection`]: how a call went, in the shapes that different callers expect;
//! - [`chain`]: several tools, one after another or side by side, over one shared context;
//! - [`provider`]: where tools come from;
//! - [`server_log`]: what providers say beside their answers;
//! - [`attachment`]: what providers keep for one session;
//! - [`settings`]: what the operator may set, as plain data;
//! - [`task`]: calls that go on after their caller has its first reply;
//! - [`trace`]: the place of a call in a trace that began elsewhere;
//! - [`store`]: where state lives that outlasts a request;
//! - [`redact`]: what is blotted out before anybody reads it;
//! - [`text`]: texts of others, cut to a length or held against a pattern;
//! - [`duration`]: durations as people write them.
//!
//! Nothing in here knows a socket, a file, a process or the environment.

pub mod arguments;
pub mod attachment;
pub mod call;
pub mod chain;
pub mod client;
pub mod diary;
pub mod duration;
pub mod entry;
pub mod error;
pub mod handler;
pub mod id;
pub mod model;
pub mod outcome;
pub mod output;
pub mod projection;
pub mod provider;
pub mod redact;
pub mod registry;
pub mod schema;
pub mod server_log;
pub mod settings;
pub mod store;
pub mod task;
pub mod text;
pub mod trace;
pub mod validation;
