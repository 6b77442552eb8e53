use super::*;

#[test]
fn every_built_in_card_reads() {
    for variant in Variant::all() {
        let card = ModelCard::of(variant);
        let (classes, deconvs) = match card.family {
            Family::Sapiens => (28, 3),
            Family::Sapiens2 => (29, 4),
        };
        assert_eq!(card.classes.len(), classes, "{variant}");
        assert_eq!(card.network.deconv_channels.len(), deconvs, "{variant}");
        let built_in = variant == Variant::Demo;
        let size = if built_in { (320, 240) } else { (1024, 768) };
        assert_eq!((card.input.height, card.input.width), size, "{variant}");
        assert_eq!(card.weights.unwrap().license.acceptance_variable().is_none(), built_in, "{variant}");
    }
}

#[test]
fn head_dims_and_grouped_layers_are_those_of_the_papers_table() {
    let head_dims: Vec<_> = Variant::all().map(|v| ModelCard::of(v).network.head_dim()).collect();
    assert_eq!(head_dims, [64, 80, 64, 60, 64, 80, 64, 76, 32]);
    let network = ModelCard::of(Variant::Sapiens2_04b).network;
    let kv: Vec<_> = (0..24).map(|layer| network.kv_heads(layer)).collect();
    assert_eq!(kv, [[16; 8], [8; 8], [16; 8]].concat());
    let network = ModelCard::of(Variant::Sapiens03b).network;
    assert!((0..24).all(|layer| network.kv_heads(layer) == 16));
}

#[test]
fn the_second_familys_numbers_are_shifted_by_the_eyeglass() {
    let first = ModelCard::of(Variant::Sapiens1b);
    let second = ModelCard::of(Variant::Sapiens2_1b);
    assert_eq!(first.class_index("face_neck").unwrap(), 2);
    assert_eq!(second.class_index("Eyeglass").unwrap(), 2);
    assert_eq!(second.class_index("Face_Neck").unwrap(), 3);
    assert_eq!(second.class_index("28").unwrap(), 28);
    let error = first.class_index("28").unwrap_err();
    assert!(error.to_string().contains("0 to 27"), "{error}");
    for index in 2..28 {
        let (a, b) = (&first.classes[index], &second.classes[index + 1]);
        assert_eq!((&a.name, a.color, &a.mirror), (&b.name, b.color, &b.mirror));
    }
}

/// A valid card of a user's own, with one line changed.
fn card_with(from: &str, to: &str) -> Result<ModelCard> {
    let text = r#"
id = "mine"
family = "sapiens2"
[network]
embed_dim = 64
layers = 18
heads = 4
ffn_dim = 256
full_kv_layers = 8
deconv_channels = [32, 24, 16, 16]
conv_channels = [16, 16]
[input]
height = 128
width = 96
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
resize = "area-or-cubic"
[[class]]
name = "Background"
color = [0, 0, 0]
[[class]]
name = "Left"
color = [255, 0, 0]
mirror = "Right"
[[class]]
name = "Right"
color = [0, 255, 0]
mirror = "Left"
"#;
    assert!(from.is_empty() || text.contains(from), "{from} is not in the card");
    ModelCard::from_toml(&text.replacen(from, to, usize::from(!from.is_empty())), "mine.toml")
}

#[test]
fn a_users_own_card() {
    let card = card_with("", "").unwrap();
    assert_eq!((card.name(), card.variant, card.weights.is_none()), ("mine", None, true));
    assert_eq!(card.classes[2].color, [0, 255, 0]);
}

#[test]
fn a_bad_card_is_refused_by_the_name_of_its_key() {
    for (from, to, expected) in [
        ("heads = 4", "heads = 5", "embed_dim 64 is no multiple of network.heads 5"),
        ("heads = 4", "heads = 0", "network.heads is 0"),
        ("heads = 4", "heads = 32", "multiple of 4"),
        ("layers = 18", "layers = 99999999", "network.layers is 99999999"),
        ("embed_dim = 64", "embed_dim = -64", "embed_dim"),
        ("full_kv_layers = 8", "", "full_kv_layers is missing"),
        ("height = 128", "height = 120", "input.height is 120: expected a multiple of 16"),
        ("width = 96", "width = 0", "input.width is 0"),
        ("std = [58.395, 57.12, 57.375]", "std = [58.395, 0.0, 57.375]", "input.std"),
        ("mean = [123.675, 116.28, 103.53]", "mean = [nan, 0.0, 0.0]", "input.mean"),
        ("[32, 24, 16, 16]", "[]", "deconv_channels has 0 entries"),
        ("[32, 24, 16, 16]", "[8, 8, 8, 8, 8]", "deconv_channels has 5 entries"),
        ("mirror = \"Right\"", "mirror = \"Wrong\"", "mirrors \"Wrong\""),
        ("name = \"Right\"", "name = \"Left\"", "\"Left\" is used twice"),
        ("color = [255, 0, 0]", "color = [256, 0, 0]", "256"),
        ("family = \"sapiens2\"", "family = \"sapiens3\"", "sapiens3"),
        ("resize = \"area-or-cubic\"", "resize = \"lanczos\"", "lanczos"),
        ("id = \"mine\"", "id = \"mine\"\nclasses = \"coco\"", "both `classes` and [[class]]"),
        ("id = \"mine\"", "idd = \"mine\"", "idd"),
    ] {
        let error = card_with(from, to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCard, "{from} -> {to}");
        let text = error.to_string();
        assert!(text.contains("mine.toml") && text.contains(expected), "{from} -> {to}: {text}");
    }
}

#[test]
fn a_missing_card_is_named() {
    let error = ModelCard::load(Path::new("/no/such/card.toml")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("/no/such/card.toml"), "{error}");
}
