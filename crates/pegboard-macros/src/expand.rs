//! Code generation for `#[tool]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, Signature};

use crate::description;
use crate::errors::Errors;
use crate::item::FunctionItem;
use crate::options::ToolOptions;
use crate::signature::{ToolInput, ToolParameter, ToolSignature};

/// Expands a function into itself and its tool, or into compile errors.
pub(crate) fn tool(options: TokenStream, item: &TokenStream) -> TokenStream {
    let Ok(mut item) = syn::parse2::<FunctionItem>(item.clone()) else {
        let message = "`#[tool]` applies to a function: put it on a `fn` that has a body";
        let error = syn::Error::new(Span::call_site(), message).into_compile_error();
        return quote!(#error #item);
    };
    let mut errors = Errors::default();
    let options = ToolOptions::read(options, &mut errors);
    let description = description::read(&options, &item, &mut errors);
    let function = ToolSignature::read(&mut item.signature, &mut errors);
    if let (Some(_), Some(function)) = (&options.input_schema, &function) {
        function.reject_schemars(&mut errors);
    }
    if item.signature.receiver().is_some() {
        // Types cannot be declared between methods.
        return quote!(#errors #item);
    }
    let entry = match (&function, &description) {
        (Some(function), Some(description)) if errors.is_empty() => {
            ToolExpansion { options: &options, description, signature: &item.signature, function }.entry()
        }
        // Errors are reported here, not again where the tool is used.
        _ => quote!(::core::unreachable!()),
    };
    let companion = companion(&item, &options, &entry);
    quote!(#errors #item #companion)
}

/// Generates the type that carries the tool under the function's name, in the type namespace.
fn companion(item: &FunctionItem, options: &ToolOptions, entry: &TokenStream) -> TokenStream {
    let (name, visibility, pegboard) = (&item.signature.ident, &item.visibility, &options.pegboard);
    let conditions: Vec<_> =
        item.attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
    let documentation = format!("The function `{name}` as a tool, for `tools!`.");
    quote! {
        #(#conditions)*
        #[doc = #documentation]
        #[allow(non_camel_case_types, unreachable_pub)]
        #visibility struct #name {}

        #(#conditions)*
        #[allow(clippy::all, clippy::pedantic, deprecated, non_snake_case, unreachable_pub)]
        impl #name {
            /// The tool, ready to be registered.
            #[must_use]
            pub fn tool_entry() -> #pegboard::entry::ToolEntry {
                #entry
            }
        }
    }
}

/// Parts of a tool without errors.
struct ToolExpansion<'a> {
    options: &'a ToolOptions,
    description: &'a TokenStream,
    signature: &'a Signature,
    function: &'a ToolSignature,
}

impl ToolExpansion<'_> {
    /// Generates the body of `tool_entry`.
    fn entry(&self) -> TokenStream {
        let (pegboard, description) = (&self.options.pegboard, self.description);
        let name = match &self.options.name {
            Some(name) => name.to_token_stream(),
            None => self.signature.ident.unraw().to_string().to_token_stream(),
        };
        let (input, output) = (self.input(), &self.function.output.ty);
        let (arguments, call, details) = (self.arguments(), self.call(), self.details());
        // Mixed-site names cannot clash with names in the user's code.
        quote_spanned! {Span::mixed_site()=>
            #arguments
            #pegboard::entry::ToolEntry::from_fn::<#input, #output, _, _>(
                #name,
                #description,
                |arguments: #input| async move { #call },
            )
            #details
        }
    }

    /// Returns the type of the argument object.
    fn input(&self) -> TokenStream {
        match &self.function.input {
            ToolInput::Parameters(_) => quote!(__PegboardArguments),
            ToolInput::Whole(ty) => ty.to_token_stream(),
        }
    }

    /// Generates the declaration of the argument object, unless the user has one.
    fn arguments(&self) -> Option<TokenStream> {
        let ToolInput::Parameters(parameters) = &self.function.input else { return None };
        let (pegboard, input) = (&self.options.pegboard, self.input());
        // Some model APIs require `properties`, even if empty.
        let no_properties = parameters.is_empty().then(|| quote!(, extend("properties" = {})));
        let derives_schema = self.options.input_schema.is_none().then(|| {
            quote! {
                #[derive(#pegboard::schemars::JsonSchema)]
                #[schemars(crate = "__pegboard::schemars" #no_properties)]
            }
        });
        let fields = parameters
            .iter()
            .map(|ToolParameter { name, ty, attributes }| quote!(#(#attributes)* #name: #ty));
        Some(quote! {
            use #pegboard as __pegboard;

            #[derive(#pegboard::serde::Deserialize)]
            #[serde(crate = "__pegboard::serde", deny_unknown_fields, expecting = "an object of arguments")]
            #derives_schema
            struct #input {
                #(#fields,)*
            }
        })
    }

    /// Generates the call of the function with the fields of `arguments`.
    fn call(&self) -> TokenStream {
        let (function, pegboard) = (&self.signature.ident, &self.options.pegboard);
        let site = Span::mixed_site();
        let arguments = Ident::new("arguments", site);
        let arguments = match &self.function.input {
            ToolInput::Parameters(parameters) => {
                let names = parameters.iter().map(|parameter| &parameter.name);
                quote!(#(#arguments.#names),*)
            }
            ToolInput::Whole(_) => quote!(#arguments),
        };
        let wait = self.signature.asyncness.map(|_| quote!(.await));
        let Some(error) = &self.function.output.error else {
            return quote!(::core::result::Result::Ok(#function(#arguments)#wait));
        };
        // An error type without `Display` is reported where the signature names it.
        let failure = quote_spanned! {site.located_at(error.span())=>
            |error| #pegboard::error::ToolError::new(::core::format_args!("{error:#}"))
        };
        quote!(#function(#arguments)#wait.map_err(#failure))
    }

    /// Generates the builder calls for schemas, title, tags and annotations.
    fn details(&self) -> TokenStream {
        let ToolOptions { title, tags, annotations, input_schema, output_schema, pegboard, .. } =
            self.options;
        let (input, output) = (self.input(), &self.function.output);
        let of_input = || quote!(#pegboard::schema::Schema::of_input::<#input>());
        let input_schema = input_schema.as_ref().map_or_else(of_input, ToTokens::to_token_stream);
        let output_schema = match (output_schema, &output.ty) {
            (Some(schema), _) => quote!(.with_output_schema(#schema)),
            (None, _) if output.is_unit() => TokenStream::new(),
            (None, ty) => quote!(.with_output_schema(#pegboard::schema::Schema::of_output::<#ty>())),
        };
        let title = title.as_ref().map(|title| quote!(.with_title(#title)));
        let tags = (!tags.is_empty()).then(|| quote!(.with_tags([#(#tags),*])));
        let annotations = (!annotations.is_empty()).then(|| {
            let flags =
                annotations.iter().map(|(flag, value)| quote!(#flag: ::core::option::Option::Some(#value)));
            quote! {
                .with_annotations(#pegboard::entry::ToolAnnotations {
                    #(#flags,)*
                    ..::core::default::Default::default()
                })
            }
        });
        quote!(.with_input_schema(#input_schema) #output_schema #title #tags #annotations)
    }
}
