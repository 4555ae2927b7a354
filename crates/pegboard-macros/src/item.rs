//! Parsing of the annotated function.

use proc_macro2::{Group, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Signature, Visibility, token};

/// A function with an unparsed body, which may use any syntax that the compiler accepts.
pub(crate) struct FunctionItem {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    body: Group,
}

impl Parse for FunctionItem {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let (attributes, visibility, signature) =
            (Attribute::parse_outer(input)?, input.parse()?, input.parse()?);
        if !input.peek(token::Brace) {
            return Err(input.error("expected a body"));
        }
        Ok(Self { attributes, visibility, signature, body: input.parse()? })
    }
}

impl ToTokens for FunctionItem {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attributes, visibility, signature, body } = self;
        // A tool takes its arguments by value, even if it does not consume them.
        tokens.extend(quote! {
            #(#attributes)*
            #[allow(clippy::needless_pass_by_value)]
            #visibility #signature #body
        });
    }
}
