//! The `#[tool]` attribute: a Rust function as a tool.
//!
//! The way of a function through this crate:
//!
//! - `item`: the function as it is written;
//! - `settings`: what stands in the parentheses of `#[tool(…)]`;
//! - `description`: the words that a model reads: the setting, or else the doc comment;
//! - `function`: what the signature says: parameters, answer, and whether it can fail;
//! - `expand`: the code that comes out;
//! - `mistakes`: everything that is wrong, gathered and said at once;
//! - `nearest`: the known word that a misspelt one was meant to be.

use proc_macro::TokenStream;

mod description;
mod expand;
mod function;
mod item;
mod mistakes;
mod nearest;
mod settings;

/// Makes a function a tool.
///
/// The function stays as it is, and `tools![…]` makes an entry of it that can be registered:
///
/// ```ignore
/// use pegboard::prelude::*;
///
/// /// Convert a temperature to Fahrenheit.
/// #[tool(tags("units"), read_only)]
/// async fn fahrenheit(
///     /// Degrees Celsius
///     celsius: f64,
///     /// Decimals to keep; two when absent
///     places: Option<u8>,
/// ) -> Result<f64> {
///     let scale = 10f64.powi(places.unwrap_or(2).into());
///     Ok(((celsius * 9.0 / 5.0 + 32.0) * scale).round() / scale)
/// }
///
/// let registry = ToolRegistry::new().with(tools![fahrenheit])?;
/// let outcome = registry.invoke("fahrenheit", json!({"celsius": 21.5})).await;
/// assert_eq!(outcome.data, 70.7);
/// assert_eq!(fahrenheit(21.5, None).await?, 70.7);
/// ```
///
/// # The function
///
/// A free function, `async` or not, anywhere: in a module (`tools![weather::now]`), inside another function,
/// with any visibility. It is not generic, and it owns what it takes: `String`, not `&str`.
///
/// **Words.** The doc comment is the description, which is all that a model knows of the tool; a parameter's
/// doc comment describes the parameter. A long description may live in its own file:
/// `#[doc = include_str!("search.md")]`.
///
/// **Parameters** are the keys of the argument object, so callers name them. Each type is `Deserialize` and
/// `JsonSchema`; an `Option` may be left out; a key that is no parameter is refused. A tool without parameters
/// takes `{}`. `#[serde(…)]` and `#[schemars(…)]` on a parameter work as they do on the field of a struct:
///
/// ```ignore
/// /// Roll dice.
/// #[tool]
/// fn roll(
///     #[schemars(range(min = 1, max = 100))] dice: u8,
///     #[serde(default = "six")] sides: u8,
///     #[serde(rename = "type")] kind: Kind,
/// ) -> Vec<u8> {
///     /* … */
/// }
/// ```
///
/// One parameter alone may be marked `#[arguments]`: it then is the whole argument object, of a type of yours
/// that derives `Deserialize` and `JsonSchema`.
///
/// **The answer** is anything that is `Serialize` and `JsonSchema`. Of a `Result` (of any path: `anyhow::Result`
/// and `std::io::Result` too) the first type is the answer, and every error that can be displayed is a failure
/// of the call, in its own words. A tool that returns nothing, or `Result<()>`, has no output schema.
///
/// # The settings
///
/// | setting | meaning |
/// |---|---|
/// | `name = "…"` | the name it is called by, instead of the function's |
/// | `title = "…"` | a name for people |
/// | `description = "…"` | what it does, instead of the doc comment |
/// | `tags("…", "…")`, `tags = ["…", "…"]` | words to find it by |
/// | `read_only` | it changes nothing |
/// | `destructive` | what it changes may be lost |
/// | `idempotent` | calling it again with the same arguments changes nothing more |
/// | `open_world` | it reaches things beyond this program |
/// | `input_schema = …` | what its arguments must look like; the parameters then need only `Deserialize` |
/// | `output_schema = …` | what its answer looks like; the answer then needs only `Serialize` |
/// | `crate = …` | where this program finds pegboard, if not at `::pegboard` |
///
/// The four flags are left open unless they are given; `destructive = false` says that it is not. A schema is
/// any expression that is `Into<Schema>`, such as `json!({…})`. A text may also be a macro that gives one,
/// such as `include_str!("search.md")`.
///
/// # What it expands to
///
/// ```ignore
/// async fn fahrenheit(celsius: f64, places: Option<u8>) -> Result<f64> { /* as written */ }
///
/// struct fahrenheit {} // functions and types have separate names, so both can be called this
///
/// impl fahrenheit {
///     pub fn tool_entry() -> ToolEntry {
///         #[derive(Deserialize, JsonSchema)]
///         #[serde(deny_unknown_fields)]
///         struct Arguments {
///             /// Degrees Celsius
///             celsius: f64,
///             /// Decimals to keep; two when absent
///             places: Option<u8>,
///         }
///         ToolEntry::from_fn(
///             "fahrenheit",
///             "Convert a temperature to Fahrenheit.",
///             |arguments: Arguments| async move {
///                 fahrenheit(arguments.celsius, arguments.places)
///                     .await
///                     .map_err(|error| ToolError::new(format_args!("{error:#}")))
///             },
///         )
///         .with_input_schema(Schema::of_input::<Arguments>())
///         .with_output_schema(Schema::of_output::<f64>())
///         .with_tags(["units"])
///         .with_annotations(Annotations { read_only: Some(true), ..Default::default() })
///     }
/// }
/// ```
///
/// `tools![fahrenheit]` is `[<fahrenheit>::tool_entry()]`. Because of the struct, a type or module in the same
/// scope must not have the function's name.
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(settings.into(), &item.into()).into()
}
