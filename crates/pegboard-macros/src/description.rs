//! Tool description: the `description` option, or else the doc comment.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use crate::errors::Errors;
use crate::item::FunctionItem;
use crate::options::ToolOptions;

/// Returns the description as an expression. A missing description is an error.
pub(crate) fn read(options: &ToolOptions, item: &FunctionItem, errors: &mut Errors) -> Option<TokenStream> {
    let description = match &options.description {
        Some(text @ Expr::Macro(_)) => Some(quote!(#text.trim())),
        Some(text) => Some(text.to_token_stream()),
        None => doc_comment(&item.attributes),
    };
    // An unknown option may have been meant as the description.
    if description.is_none() && errors.is_empty() {
        let name = &item.signature.ident;
        let message = format_args!(
            "a tool needs a description, it is all that a model knows about it: \
             write a `///` comment above `{name}`, or `#[tool(description = \"…\")]`"
        );
        errors.push_spanned(name, message);
    }
    description
}

fn doc_comment(attributes: &[Attribute]) -> Option<TokenStream> {
    let parts: Vec<&Expr> = attributes.iter().filter_map(doc).collect();
    if let Some(lines) = parts.iter().map(|part| lines(part)).collect::<Option<Vec<String>>>() {
        let text = lines.join("\n");
        let text = text.trim();
        return (!text.is_empty()).then(|| quote!(#text));
    }
    // The text of `#[doc = include_str!("…")]` is not known at expansion time.
    let parts = parts.iter().map(|part| lines(part).map_or_else(|| quote!(#part), |lines| quote!(#lines)));
    Some(quote!(::core::concat!(#(#parts, "\n"),*).trim()))
}

fn doc(attribute: &Attribute) -> Option<&Expr> {
    match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => Some(&doc.value),
        _ => None,
    }
}

/// Returns the lines of one part, without the space that follows `///`.
fn lines(part: &Expr) -> Option<String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = part else { return None };
    let text = text.value();
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    Some(lines.join("\n"))
}
