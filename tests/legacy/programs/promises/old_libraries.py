"""Names that Pillow and pandas have removed; prints what they did in Pillow 6.2 and pandas 0.25."""
import sys
import warnings

warnings.simplefilter("ignore")


def pillow():
    from PIL import Image, ImageDraw, ImageFont
    import PIL

    import numpy as np

    picture = Image.fromarray((np.arange(400, dtype=np.uint32).reshape(20, 20) % 251).astype(np.uint8))
    for name in ("ANTIALIAS", "CUBIC", "LINEAR", "NEAREST"):
        print(name, int(getattr(Image, name)), int(np.asarray(picture.resize((7, 7), getattr(Image, name))).sum()))
    print(Image.isImageType(picture), Image.isImageType(3), PIL.__version__ == getattr(PIL, "PILLOW_VERSION", PIL.__version__))
    bitmaps = getattr(ImageFont, "load_default_imagefont", ImageFont.load_default)()
    draw = ImageDraw.Draw(picture)
    lines = "one\n\nand a longer line"
    for font in [bitmaps] + [ImageFont.truetype(path, 17, layout_engine=ImageFont.LAYOUT_BASIC) for path in sys.argv[2:]]:
        turned = ImageFont.TransposedFont(font, Image.ROTATE_90)
        upright = ImageFont.TransposedFont(font, Image.FLIP_LEFT_RIGHT)
        print(font.getsize("hello, World"), turned.getsize("hello"), upright.getsize("hello"))
        print(draw.textsize("hello", font), draw.textsize(lines, font), draw.textsize(lines, font=font, spacing=9))
        print(draw.multiline_textsize("hello", font=font, spacing=7), draw.multiline_textsize(lines, font, 2))
        if hasattr(font, "getoffset"):
            print(font.getsize("gap"), font.getsize(" "), font.getsize(""), font.getsize(u"\u00c5j"), font.getoffset("gap"))
            print(font.getsize_multiline(lines), font.getsize_multiline(lines, None, 11, stroke_width=2))
            print(font.getsize("edge", stroke_width=3), draw.textsize("edge", font, stroke_width=1))
            print(draw.textsize(lines, font, 3, None, None, None, 2), draw.multiline_textsize(lines, font, stroke_width=2))


def refused(use):
    try:
        use()
    except Exception as error:
        return type(error).__name__
    return "nothing raised"


def pandas():
    import datetime
    import re

    import numpy as np
    import pandas as pd

    def show(value):
        if isinstance(value, pd.DataFrame):
            kinds = [kind.kind for kind in value.dtypes]
            print(list(value.columns), kinds, value.index.tolist(), value.values.tolist(), list(value.index.names))
        elif isinstance(value, pd.Series):
            print(value.dtype.kind, value.tolist(), value.index.tolist(), value.name)
        else:
            print(value.tolist() if isinstance(value, np.ndarray) else value)

    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 0.0, -2.0]}, index=["x", "y", "z"])
    row = pd.Series({"b": 9.0, "a": 7}, name="w")
    show(frame.append(row))
    show(frame.append(row, ignore_index=True))
    show(frame.append({"a": 5, "c": 1.5}, ignore_index=True).fillna(-1))
    show(frame.append([row, row], ignore_index=True))
    show(frame.append(frame.rename(columns={"b": "d"}), sort=True).fillna(-1))
    show(frame.append([frame, frame]))
    show(pd.DataFrame().append(frame))
    show(pd.DataFrame(columns=["a", "b"]).append({"a": 1, "b": 2}, ignore_index=True).astype(float))
    print(refused(lambda: frame.append({"a": 1})))
    print(refused(lambda: frame.append(pd.Series({"a": 1}))))
    print(refused(lambda: frame.append(frame, verify_integrity=True)))
    named = frame.rename_axis("key")
    show(named.append(row))
    show(frame["a"].append(frame["b"]))
    show(frame["a"].append([frame["a"], frame["a"]], ignore_index=True))
    show(frame.applymap(lambda value: value * 2))
    print([(name, column.tolist()) for name, column in frame.iteritems()], list(frame["a"].iteritems()))
    print(pd.Index([1, 2, 2]).is_monotonic, pd.Series([2, 1]).is_monotonic)
    show(frame["b"].ravel())
    print(pd.np is np, pd.datetime is datetime.datetime, pd.io.json.json_normalize({"a": {"b": 1}}).columns.tolist())
    if pd.__version__ < "1" or pd.__version__ >= "2":  # removed in pandas 1.0
        show(frame.as_matrix())
        show(frame.as_matrix(["b"]))
        show(frame.get_values())
        show(frame["a"].get_values())
        show(frame.index.get_values())
        show(frame.clip_lower(0.25))
        show(frame["b"].clip_upper(0.25))
        show(frame.clip_lower(pd.Series([2, 0, 0], index=frame.index), axis=0))
        print(frame.get_value("y", "a"), frame.get_value(2, 1, takeable=True), frame.get_value(2, 1, True))
        print(frame["a"].get_value("z"), frame["a"].get_value(0, takeable=True))
        show(frame.set_value("x", "a", 8))
        show(frame["b"].copy().set_value("z", 1.0))
        show(frame["b"].nonzero()[0])

    def words_of(series):
        print(["nothing" if pd.isnull(word) else word for word in series])

    words = pd.Series(["a.b.c", "aXb", "(x)", None])
    patterns = [("a.b", "-"), (".", "-"), ("[abc]", ""), (r"(\w)\.", r"<\1>"), ("(", "{"), (re.compile("x", re.I), "y")]
    for pattern, new in patterns:
        words_of(words.str.replace(pattern, new))
    words_of(words.str.replace("[ab]", "-", 1))
    words_of(words.str.replace("x", "y", case=False))
    words_of(words.str.replace("[a-z]", lambda found: found.group().upper()))
    words_of(words.str.replace("a.b", "-", regex=False))
    words_of(words.str.replace("b", "", flags=re.I))
    print(pd.Index(["a1", "b22"]).str.replace(r"\d+", "#").tolist())


{"pillow": pillow, "pandas": pandas}[sys.argv[1]]()
