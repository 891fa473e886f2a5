"""What the labels of the public sets mean. Label n is the n-th name."""

DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFGHIJ")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_PHOTOS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = tuple(_PHOTOS.split())
_ACTIVITIES = """
    A walking, B jogging, C stairs, D sitting, E standing, F typing, G brushing teeth, H eating soup, I eating chips,
    J eating pasta, K drinking from a cup, L eating a sandwich, M kicking a ball, O playing catch, P dribbling a ball,
    Q writing, R clapping, S folding clothes
"""
WISDM = {item.split()[0]: " ".join(item.split()[1:]) for item in _ACTIVITIES.split(",")}
"""The code of each activity in the files, and its name."""
_MOVES = """
    Brush_teeth Climb_stairs Comb_hair Descend_stairs Drink_glass Eat_meat Eat_soup Getup_bed Liedown_bed Pour_water
    Sitdown_chair Standup_chair Use_telephone Walk
"""
HMP = tuple(_MOVES.split())
